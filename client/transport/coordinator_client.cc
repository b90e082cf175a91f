#include "client/transport/coordinator_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <cstring>
#include <utility>

#include "client/transport/channel.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "proto/grpc_deadline.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"

namespace kaon::client {

struct CoordinatorClient::Peer {
  explicit Peer(const std::shared_ptr<grpc::Channel>& channel)
      : stub(v1::Coordinator::NewStub(channel)), any_method(channel) {}
  const std::unique_ptr<v1::Coordinator::Stub> stub;
  grpc::GenericStub any_method;
};

namespace {

constexpr char kHolderKey[] = "kaon-holder";

std::string HolderOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto holder = metadata.find(kHolderKey);
  if (holder == metadata.end()) return std::string();
  return std::string(holder->second.data(), holder->second.size());
}

// State of a unary call until its callback has run. Shared by the callback and the caller.
template <typename Request, typename Response>
struct UnaryCall : public OutgoingCall {
  UnaryCall(std::shared_ptr<CallTracker> tracker, const Request& request,
            CoordinatorClient::Callback<Response> done)
      : token(std::move(tracker)), request(request), done(std::move(done)) {}
  void Cancel() override { context.TryCancel(); }

  const CallTracker::Token token;
  grpc::ClientContext context;
  const Request request;
  Response response;
  CoordinatorClient::Callback<Response> done;
};

// One AwaitStep. It keeps itself alive from Start to OnDone.
class AwaitCall : public OutgoingCall, public grpc::ClientReadReactor<v1::StepEvent> {
 public:
  AwaitCall(std::shared_ptr<CallTracker> tracker, const v1::AwaitStepRequest& request,
            std::function<void(const v1::StepEvent&)> on_event,
            std::function<void(const absl::Status&, const std::string&)> on_end)
      : token_(std::move(tracker)),
        request_(request),
        on_event_(std::move(on_event)),
        on_end_(std::move(on_end)) {}

  void Start(v1::Coordinator::Stub& stub, std::shared_ptr<AwaitCall> self) {
    self_ = std::move(self);
    stub.async()->AwaitStep(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    on_event_(event_);
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    on_end_(proto::FromGrpc(status), HolderOf(context_));
    const std::shared_ptr<AwaitCall> self = std::move(self_);
  }

 private:
  const CallTracker::Token token_;
  grpc::ClientContext context_;
  const v1::AwaitStepRequest request_;
  const std::function<void(const v1::StepEvent&)> on_event_;
  const std::function<void(const absl::Status&, const std::string&)> on_end_;
  v1::StepEvent event_;
  // The call itself shares this object until OnDone.
  std::shared_ptr<AwaitCall> self_;
};

}  // namespace

CoordinatorClient::CoordinatorClient(TlsFiles tls, std::shared_ptr<CallTracker> tracker)
    : tls_(std::move(tls)), tracker_(std::move(tracker)) {}

CoordinatorClient::~CoordinatorClient() = default;

absl::Status CoordinatorClient::Open(const std::string& address) {
  return PeerOf(address).status();
}

absl::StatusOr<std::shared_ptr<CoordinatorClient::Peer>> CoordinatorClient::PeerOf(
    const std::string& address) {
  {
    MutexLock lock(mu_);
    const auto peer = peers_.find(address);
    if (peer != peers_.end()) return peer->second;
  }
  // Not under the lock, because this reads files. If two threads do it, the first one's connection
  // stays.
  KAON_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                        CreateChannel(address, tls_, proto::Role::kCoordinator));
  auto made = std::make_shared<Peer>(std::move(channel));
  MutexLock lock(mu_);
  return peers_.emplace(address, std::move(made)).first->second;
}

template <typename Request, typename Response, typename Method>
std::shared_ptr<OutgoingCall> CoordinatorClient::Call(const std::string& address,
                                                      const Request& request,
                                                      absl::Duration timeout,
                                                      Callback<Response> done, Method method) {
  const absl::StatusOr<std::shared_ptr<Peer>> peer = PeerOf(address);
  if (!peer.ok()) {
    done(peer.status(), std::string());
    return nullptr;
  }
  auto call = std::make_shared<UnaryCall<Request, Response>>(tracker_, request, std::move(done));
  call->context.set_deadline(proto::DeadlineAfter(timeout));
  const auto on_done = [call](const grpc::Status& status) {
    const std::string holder = HolderOf(call->context);
    const auto done = std::move(call->done);
    if (status.ok()) {
      done(std::move(call->response), holder);
    } else {
      done(proto::FromGrpc(status), holder);
    }
  };
  method(**peer, &call->context, &call->request, &call->response, on_done);
  return call;
}

std::shared_ptr<OutgoingCall> CoordinatorClient::Register(const std::string& address,
                                                          const v1::RegisterJobRequest& request,
                                                          absl::Duration timeout,
                                                          Callback<v1::JobDescription> done) {
  return Call(address, request, timeout, std::move(done),
              [](Peer& peer, auto... call) { peer.stub->async()->RegisterJob(call...); });
}

std::shared_ptr<OutgoingCall> CoordinatorClient::GetJob(const std::string& address,
                                                        const v1::GetJobRequest& request,
                                                        absl::Duration timeout,
                                                        Callback<v1::JobDescription> done) {
  return Call(address, request, timeout, std::move(done),
              [](Peer& peer, auto... call) { peer.stub->async()->GetJob(call...); });
}

std::shared_ptr<OutgoingCall> CoordinatorClient::Join(const std::string& address,
                                                      const v1::JoinWorkerRequest& request,
                                                      absl::Duration timeout,
                                                      Callback<v1::JoinWorkerResponse> done) {
  return Call(address, request, timeout, std::move(done),
              [](Peer& peer, auto... call) { peer.stub->async()->JoinWorker(call...); });
}

std::shared_ptr<OutgoingCall> CoordinatorClient::Begin(const std::string& address,
                                                       const v1::BeginStepRequest& request,
                                                       absl::Duration timeout,
                                                       Callback<v1::BeginStepResponse> done) {
  return Call(address, request, timeout, std::move(done),
              [](Peer& peer, auto... call) { peer.stub->async()->BeginStep(call...); });
}

std::shared_ptr<OutgoingCall> CoordinatorClient::CheckAnswers(const std::string& address,
                                                              absl::Duration timeout,
                                                              Callback<bool> done) {
  // grpc.health.v1.HealthCheckRequest has one field: the string `service`, number 1. Debian has no
  // stub of that service.
  std::string request = "\x0a";
  request.push_back(static_cast<char>(std::strlen(v1::Coordinator::service_full_name())));
  request.append(v1::Coordinator::service_full_name());
  const grpc::Slice bytes(request);
  return Call<grpc::ByteBuffer, grpc::ByteBuffer>(
      address, grpc::ByteBuffer(&bytes, 1), timeout,
      [done = std::move(done)](const absl::StatusOr<grpc::ByteBuffer>& answer,
                               const std::string& holder) {
        if (answer.ok()) {
          done(true, holder);
        } else {
          done(answer.status(), holder);
        }
      },
      [](Peer& peer, grpc::ClientContext* context, auto... call) {
        peer.any_method.UnaryCall(context, "/grpc.health.v1.Health/Check", {}, call...);
      });
}

std::shared_ptr<OutgoingCall> CoordinatorClient::Await(
    const std::string& address, const v1::AwaitStepRequest& request,
    std::function<void(const v1::StepEvent&)> on_event,
    std::function<void(const absl::Status&, const std::string& holder)> on_end) {
  const absl::StatusOr<std::shared_ptr<Peer>> peer = PeerOf(address);
  if (!peer.ok()) {
    on_end(peer.status(), std::string());
    return nullptr;
  }
  auto call =
      std::make_shared<AwaitCall>(tracker_, request, std::move(on_event), std::move(on_end));
  call->Start(*(*peer)->stub, call);
  return call;
}

}  // namespace kaon::client
