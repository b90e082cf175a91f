#include "server/coordinator/service/await_reactor.h"

#include <utility>
#include <variant>

#include "proto/grpc_status.h"
#include "server/coordinator/service/coordinator_service.h"

namespace kaon::coordinator {

AwaitReactor* AwaitReactor::Start(MachineLoop& loop, grpc::CallbackServerContext& context,
                                  CallEnded ended, const v1::AwaitStepRequest& request) {
  auto reactor = std::make_shared<AwaitReactor>(loop, context, std::move(ended));
  reactor->self_ = reactor;
  loop.Submit(
      reactor->call_,
      [request](StepMachine& machine, CallId call) { machine.Await(call, request); },
      [reactor](CoordinatorAction action) { reactor->OnAction(std::move(action)); });
  return reactor.get();
}

AwaitReactor* AwaitReactor::Refuse(MachineLoop& loop, grpc::CallbackServerContext& context,
                                   CallEnded ended, const absl::Status& status) {
  auto reactor = std::make_shared<AwaitReactor>(loop, context, std::move(ended));
  reactor->self_ = reactor;
  reactor->OnAction(AwaitFailed{reactor->call_, status, ""});
  return reactor.get();
}

void AwaitReactor::OnAction(CoordinatorAction action) {
  {
    MutexLock lock(mu_);
    if (auto* event = std::get_if<AwaitEvent>(&action)) {
      // A newer event replaces a plan that waits behind the event being written.
      if (events_.size() > 1 && events_.back()->message.has_planned()) events_.pop_back();
      events_.push_back(std::move(event->event));
      if (event->last) end_ = absl::OkStatus();
    } else if (auto* failed = std::get_if<AwaitFailed>(&action)) {
      end_ = failed->status;
      holder_address_ = failed->holder_address;
    }
  }
  Proceed();
}

void AwaitReactor::Proceed() {
  Shared<v1::StepEvent> event;
  absl::Status end;
  {
    MutexLock lock(mu_);
    if (writing_ || finished_) return;
    if (!events_.empty()) {
      writing_ = true;
      event = events_.front();
    } else if (end_) {
      finished_ = true;
      end = *end_;
      if (!holder_address_.empty()) context_.AddTrailingMetadata(kHolderMetadata, holder_address_);
    } else {
      return;
    }
  }
  if (event != nullptr) {
    // gRPC may keep the bytes for longer than the stream lives, so copy them.
    const grpc::Slice slice(event->bytes.data(), event->bytes.size());
    out_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&out_);
  } else {
    ended_(end);
    Finish(proto::ToGrpc(end));
  }
}

void AwaitReactor::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    writing_ = false;
    events_.pop_front();
    // The peer is gone; OnCancel ends the stream.
    if (!ok) events_.clear();
  }
  Proceed();
}

void AwaitReactor::OnCancel() { loop_.Cancel(call_); }

void AwaitReactor::OnDone() {
  // This may be the last owner: touch no member after this line.
  const std::shared_ptr<AwaitReactor> last = std::move(self_);
}

}  // namespace kaon::coordinator
