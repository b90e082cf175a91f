// What loopback TCP gives at best: bytes sent by one thread and copied once by another, as a data
// plane has to. The limit of the benchmarks `push` and `pull`. One thread calls.
#ifndef KAON_TESTS_BENCHMARK_LOOPBACK_TCP_H_
#define KAON_TESTS_BENCHMARK_LOOPBACK_TCP_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kaon::benchmark {

// Connected sockets (sender, receiver), which are the caller's to close. CHECKs.
std::vector<std::pair<int, int>> ConnectOverLoopback(int connections);

class LoopbackTcp {
 public:
  // `connections` at once, each of `bytes` per Transfer. CHECKs that the machine has sockets.
  LoopbackTcp(int connections, uint64_t bytes);
  ~LoopbackTcp();

  // Sends on every connection by `chunk_bytes` at a time; returns once the last byte is copied.
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
