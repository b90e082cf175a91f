// Does what most programs do that send tensors over gRPC: unary calls with the elements in a
// protobuf `bytes` field, and gRPC's default settings. The benchmarks `push` and `pull` must be
// three times as fast. One thread calls.
#ifndef KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_
#define KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace kaon::benchmark {

class ProtobufUnary {
 public:
  // Opens `clients`, each with its own connection; each moves `bytes` per Transfer.
  ProtobufUnary(int clients, uint64_t bytes);
  ~ProtobufUnary();

  // Sends `message_bytes` in each call; returns once the last byte is in its final place.
  void Transfer(uint64_t message_bytes);

 private:
  class Server;
  class Client;

  // Destroyed in reverse order.
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_
