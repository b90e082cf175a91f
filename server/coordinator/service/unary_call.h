// A unary call on its way to the state machine and back: asked in the loop's thread, answered by
// the machine's action, ended when its caller is gone. Shared by the services of the coordinator;
// gRPC's threads and the loop's use it.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_UNARY_CALL_H_
#define KAON_SERVER_COORDINATOR_SERVICE_UNARY_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "proto/grpc_status.h"
#include "server/coordinator/machine/actions.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/service/call_ended.h"
#include "server/coordinator/service/coordinator_service.h"

namespace kaon::coordinator {

// The way back of a unary call. Copied into the loop; gRPC keeps context, reactor and response
// alive until Finish.
template <typename Reply, typename Response>
class UnaryAnswer {
 public:
  UnaryAnswer(grpc::CallbackServerContext* context, Response* response, CallEnded ended)
      : UnaryAnswer(context, context->DefaultReactor(), response, std::move(ended)) {}
  UnaryAnswer(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
              Response* response, CallEnded ended)
      : context_(context), reactor_(reactor), response_(response), ended_(std::move(ended)) {}

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
    ended_(status);
    if (!holder_address.empty()) context_->AddTrailingMetadata(kHolderMetadata, holder_address);
    reactor_->Finish(proto::ToGrpc(status));
  }

 private:
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
  Response* response_;
  CallEnded ended_;
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
  // As MachineLoop::Submit, of a call that may have waited for something else first: nothing is
  // asked for a caller that is gone by the time it is the request's turn.
  void Submit(MachineLoop::Request request, MachineLoop::Sink sink) {
    loop_.Submit(
        call_,
        [this, request = std::move(request)](StepMachine& machine, CallId call) {
          // Alive until the sink ends the call, which follows in the loop.
          if (cancelled_) return loop_.Cancel(call);
          request(machine, call);
        },
        std::move(sink));
  }
  void OnCancel() override {
    cancelled_ = true;
    loop_.Cancel(call_);
  }
  void OnDone() override {
    // The last owner: nothing may be touched after this.
    const std::shared_ptr<WaitingReactor> last = std::move(self_);
  }

 private:
  MachineLoop& loop_;
  const CallId call_;
  std::atomic<bool> cancelled_{false};
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

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_UNARY_CALL_H_
