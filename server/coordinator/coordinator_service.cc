#include "server/coordinator/coordinator_service.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/grpc_status.h"
#include "server/auth/peer_identity.h"
#include "server/coordinator/await_reactor.h"

namespace kaon::coordinator {

namespace {

absl::Status AuthorizeJob(const grpc::CallbackServerContext& context, absl::string_view job) {
  const proto::Identity identity = auth::PeerIdentity(context);
  if (!identity.job || *identity.job == job) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("certificate is for job \"", *identity.job,
                                                  "\", the request is for \"", job, "\""));
}

// The way back of a unary call. Copied into the loop; gRPC keeps context, reactor and response
// alive until Finish.
template <typename Reply, typename Response>
class UnaryAnswer {
 public:
  UnaryAnswer(grpc::CallbackServerContext* context, Response* response)
      : UnaryAnswer(context, context->DefaultReactor(), response) {}
  UnaryAnswer(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
              Response* response)
      : context_(context), reactor_(reactor), response_(response) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

  void operator()(CoordinatorAction action) const {
    if (auto* failed = std::get_if<AwaitFailed>(&action)) {
      Finish(failed->status, failed->holder_address);
    } else if (auto* reply = std::get_if<Reply>(&action)) {
      if (reply->response.ok()) *response_ = std::move(*reply->response);
      Finish(reply->response.status(), reply->holder_address);
    } else {
      Finish(absl::InternalError("answer of another kind of call"), "");
    }
  }

  void Finish(const absl::Status& status, const std::string& holder_address) const {
    if (!holder_address.empty()) context_->AddTrailingMetadata(kHolderMetadata, holder_address);
    reactor_->Finish(proto::ToGrpc(status));
  }

 private:
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
  Response* response_;
};

// Reactor of a unary call that may wait for long: ends it in the loop when its caller is gone. Owns
// itself until gRPC is done with it.
class WaitingReactor : public grpc::ServerUnaryReactor {
 public:
  static WaitingReactor* Make(MachineLoop& loop) {
    auto reactor = std::make_shared<WaitingReactor>(loop);
    reactor->self_ = reactor;
    return reactor.get();
  }

  explicit WaitingReactor(MachineLoop& loop) : loop_(loop), call_(loop.NewCall()) {}

  CallId call() const { return call_; }
  void OnCancel() override { loop_.Cancel(call_); }
  void OnDone() override {
    // The last owner: nothing may be touched after this.
    const std::shared_ptr<WaitingReactor> last = std::move(self_);
  }

 private:
  MachineLoop& loop_;
  const CallId call_;
  std::shared_ptr<WaitingReactor> self_;
};

// Asks the machine `question`, in its thread, unless the caller may not; it answers by `answer`.
template <typename Request, typename Answer>
grpc::ServerUnaryReactor* Ask(MachineLoop& loop, CallId call, const absl::Status& authorized,
                              void (StepMachine::*question)(CallId, const Request&),
                              const Request& request, const Answer& answer) {
  if (!authorized.ok()) {
    answer.Finish(authorized, "");
  } else {
    loop.Submit(
        call,
        [question, &request](StepMachine& machine, CallId call) {
          (machine.*question)(call, request);
        },
        answer);
  }
  return answer.reactor();
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorService::RegisterJob(grpc::CallbackServerContext* context,
                                                          const v1::RegisterJobRequest* request,
                                                          v1::JobDescription* response) {
  WaitingReactor* const reactor = WaitingReactor::Make(loop_);
  const UnaryAnswer<ReplyRegister, v1::JobDescription> answer(context, reactor, response);
  return Ask(loop_, reactor->call(), AuthorizeJob(*context, request->definition().name()),
             &StepMachine::Register, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::GetJob(grpc::CallbackServerContext* context,
                                                     const v1::GetJobRequest* request,
                                                     v1::JobDescription* response) {
  const UnaryAnswer<ReplyGetJob, v1::JobDescription> answer(context, response);
  return Ask(loop_, loop_.NewCall(), AuthorizeJob(*context, request->job()), &StepMachine::GetJob,
             *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::JoinWorker(grpc::CallbackServerContext* context,
                                                         const v1::JoinWorkerRequest* request,
                                                         v1::JoinWorkerResponse* response) {
  const UnaryAnswer<ReplyJoin, v1::JoinWorkerResponse> answer(context, response);
  return Ask(loop_, loop_.NewCall(),
             auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank()),
             &StepMachine::Join, *request, answer);
}

grpc::ServerUnaryReactor* CoordinatorService::BeginStep(grpc::CallbackServerContext* context,
                                                        const v1::BeginStepRequest* request,
                                                        v1::BeginStepResponse* response) {
  const UnaryAnswer<ReplyBegin, v1::BeginStepResponse> answer(context, response);
  return Ask(loop_, loop_.NewCall(),
             auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank()),
             &StepMachine::Begin, *request, answer);
}

grpc::ServerWriteReactor<v1::StepEvent>* CoordinatorService::AwaitStep(
    grpc::CallbackServerContext* context, const v1::AwaitStepRequest* request) {
  const absl::Status authorized =
      auth::AuthorizeWorker(auth::PeerIdentity(*context), request->job(), request->rank());
  if (!authorized.ok()) return AwaitReactor::Refuse(loop_, *context, authorized);
  return AwaitReactor::Start(loop_, *context, *request);
}

}  // namespace kaon::coordinator
