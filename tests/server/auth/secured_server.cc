#include "tests/server/auth/secured_server.h"

#include <glog/logging.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "server/auth/peer_identity.h"
#include "server/auth/server_credentials.h"

namespace kaon::testing {

grpc::ServerUnaryReactor* SecuredServer::ShardControl::DescribeShard(
    grpc::CallbackServerContext* context, const v1::DescribeShardRequest*,
    v1::DescribeShardResponse*) {
  last_peer = auth::PeerIdentity(*context);
  last_connection = context->peer();
  ++calls;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

SecuredServer::SecuredServer(const v1::TlsConfig& tls, const std::string& listen, size_t calls) {
  const auto limits = std::make_shared<auth::CallLimits>(calls);
  const auto policy = auth::PeerPolicy::Create(tls);
  CHECK(policy.ok()) << policy.status();
  auto credentials = auth::CreateServerCredentials(
      tls, listen, *policy,
      [this](const std::string& peer, const absl::Status& refusal) {
        MutexLock lock(mu_);
        last_refused_ = peer + ": " + std::string(refusal.message());
      },
      [this] { ++arrived_; }, limits);
  CHECK(credentials.ok()) << credentials.status();
  grpc::ServerBuilder builder;
  auth::HardenServer(builder);
  auto bound = listener::Listener::Bind(listen, counts_);
  CHECK(bound.ok()) << bound.status();
  listener_ = *std::move(bound);
  listener_->AddTo(builder, *credentials, *policy, limits);
  builder.RegisterService(&shard_data_);
  listener_->AddService(builder, shard_control_, v1::ShardControl::service_full_name());
  builder.RegisterService(&coordinator_);
  builder.RegisterService(&admin_);
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr);
  const absl::Status started = listener_->Start(/*reserve=*/0, !tls.ca_file().empty());
  CHECK(started.ok()) << started;
}

SecuredServer::~SecuredServer() {
  listener_->Stop();
  server_->Shutdown();
}

std::string SecuredServer::last_refused() const {
  MutexLock lock(mu_);
  return last_refused_;
}

std::string SecuredServer::address(const std::string& host) const {
  return host + ":" + std::to_string(listener_->port());
}

grpc::Status CallEmpty(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request(nullptr, 0);
  auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &call);
  void* tag = nullptr;
  bool ok = false;
  CHECK(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

}  // namespace kaon::testing
