// A unary call on its way to the state machine and back. The loop's thread asks the machine, the
// machine's action is the answer, and the call ends early if its caller is gone. Shared by the
// coordinator's services; used by gRPC's threads and the loop's thread.
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

// Sends the answer of a unary call. The loop holds a copy. gRPC keeps context, reactor and response
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

// Reactor of a unary call that may wait long: ends the call in the loop when its caller is gone.
// Owns itself until gRPC calls OnDone.
class WaitingReactor : public grpc::ServerUnaryReactor {
 public:
  static WaitingReactor* Make(MachineLoop& loop) {
    auto reactor = std::make_shared<WaitingReactor>(loop);
    reactor->self_ = reactor;
    return reactor.get();
  }

  explicit WaitingReactor(MachineLoop& loop) : loop_(loop), call_(loop.NewCall()) {}

  CallId call() const { return call_; }
  // Submits a call that may have waited for other work first (MachineLoop::Submit). If the caller
  // is gone when the request runs, the machine is not asked.
  void Submit(MachineLoop::Request request, MachineLoop::Sink sink) {
    loop_.Submit(
        call_,
        [this, request = std::move(request)](StepMachine& machine, CallId call) {
          // `this` lives until the sink ends the call, which happens later in the loop.
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
    // The last owner: touch no member after this line.
    const std::shared_ptr<WaitingReactor> last = std::move(self_);
  }

 private:
  MachineLoop& loop_;
  const CallId call_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<WaitingReactor> self_;
};

// Asks the machine `question` on its thread if `authorized` is OK. Ends the call through `answer`.
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
