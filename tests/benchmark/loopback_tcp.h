// Measures the best that loopback TCP can do: one thread sends bytes and another copies them once,
// as a data plane must. This is the limit of the benchmarks `push` and `pull`. One thread calls.
#ifndef KAON_TESTS_BENCHMARK_LOOPBACK_TCP_H_
#define KAON_TESTS_BENCHMARK_LOOPBACK_TCP_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kaon::benchmark {

// Returns connected sockets (sender, receiver), which the caller must close. CHECKs.
std::vector<std::pair<int, int>> ConnectOverLoopback(int connections);

class LoopbackTcp {
 public:
  // Opens `connections`; each moves `bytes` per Transfer. CHECKs that the machine has sockets.
  LoopbackTcp(int connections, uint64_t bytes);
  ~LoopbackTcp();

  // Sends on every connection in pieces of `chunk_bytes`; returns once the last byte is copied.
  void Transfer(uint64_t chunk_bytes);

 private:
  struct Connection {
    int sender = -1;
    int receiver = -1;
    std::vector<char> from;
    std::vector<char> to;
  };

  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_LOOPBACK_TCP_H_
