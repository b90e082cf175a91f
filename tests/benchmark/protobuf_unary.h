// What most programs that send tensors over gRPC do: unary calls whose message has the elements in
// a protobuf `bytes` field, with gRPC's own settings. What the benchmarks `push` and `pull` are to
// be three times as fast as. One thread calls.
#ifndef KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_
#define KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace kaon::benchmark {

class ProtobufUnary {
 public:
  // `clients` at once, each with a connection of its own, of `bytes` per Transfer.
  ProtobufUnary(int clients, uint64_t bytes);
  ~ProtobufUnary();

  // Sends by `message_bytes` a call; returns once the last byte is where it belongs.
  void Transfer(uint64_t message_bytes);

 private:
  class Server;
  class Client;

  // Destroyed in reverse.
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_PROTOBUF_UNARY_H_
