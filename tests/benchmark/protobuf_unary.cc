#include "tests/benchmark/protobuf_unary.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "unary.grpc.pb.h"

namespace kaon::benchmark {

namespace {

// Room in a message in addition to its payload.
constexpr uint64_t kEnvelopeBytes = 64;
constexpr uint64_t kMostMessageBytes = uint64_t{4} << 20;

}  // namespace

class ProtobufUnary::Server : public Unary::Service {
 public:
  Server(int clients, uint64_t bytes) : to_(clients, std::vector<char>(bytes, '.')) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMostMessageBytes + kEnvelopeBytes));
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr);
  }

  int port() const { return port_; }

  grpc::Status Put(grpc::ServerContext* /*context*/, const Part* part, Done* /*done*/) override {
    std::vector<char>& to = to_.at(part->client());
    const std::string& payload = part->payload();
    CHECK_LE(part->offset() + payload.size(), to.size());
    std::memcpy(to.data() + part->offset(), payload.data(), payload.size());
    return grpc::Status::OK;
  }

 private:
  // Target of each client.
  std::vector<std::vector<char>> to_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ProtobufUnary::Client {
 public:
  Client(uint32_t index, int port, uint64_t bytes) : index_(index), from_(bytes, 'x') {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = Unary::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials(), arguments));
  }

  void Send(uint64_t message_bytes) {
    for (uint64_t sent = 0; sent < from_.size(); sent += message_bytes) {
      Part part;
      part.set_client(index_);
      part.set_offset(sent);
      part.set_payload(from_.data() + sent, std::min(message_bytes, from_.size() - sent));
      Done done;
      grpc::ClientContext context;
      const grpc::Status status = stub_->Put(&context, part, &done);
      CHECK(status.ok()) << status.error_message();
    }
  }

 private:
  const uint32_t index_;
  const std::vector<char> from_;
  std::unique_ptr<Unary::Stub> stub_;
};

ProtobufUnary::ProtobufUnary(int clients, uint64_t bytes)
    : server_(std::make_unique<Server>(clients, bytes)) {
  for (int i = 0; i < clients; ++i) {
    clients_.push_back(std::make_unique<Client>(static_cast<uint32_t>(i), server_->port(), bytes));
  }
}

ProtobufUnary::~ProtobufUnary() = default;

void ProtobufUnary::Transfer(uint64_t message_bytes) {
  CHECK_LE(message_bytes, kMostMessageBytes);
  std::vector<std::thread> threads;
  for (const auto& client : clients_) {
    threads.emplace_back([&client, message_bytes] { client->Send(message_bytes); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kaon::benchmark
