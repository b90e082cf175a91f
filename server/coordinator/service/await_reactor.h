// Server side of one AwaitStep stream: queues the machine's events and writes them one by one. Owns
// itself until gRPC calls OnDone. The loop's thread and gRPC's threads may call it.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_AWAIT_REACTOR_H_
#define KAON_SERVER_COORDINATOR_SERVICE_AWAIT_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/mutex.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/service/call_ended.h"

namespace kaon::coordinator {

class AwaitReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Submits the request to the loop. `loop` and `context` must outlive the stream. gRPC (through
  // self_) and the loop share the reactor as long as the loop has the call open.
  static AwaitReactor* Start(MachineLoop& loop, grpc::CallbackServerContext& context,
                             CallEnded ended, const v1::AwaitStepRequest& request);
  // Returns a stream that ends with `status` at once.
  static AwaitReactor* Refuse(MachineLoop& loop, grpc::CallbackServerContext& context,
                              CallEnded ended, const absl::Status& status);

  AwaitReactor(MachineLoop& loop, grpc::CallbackServerContext& context, CallEnded ended)
      : loop_(loop), context_(context), ended_(std::move(ended)), call_(loop.NewCall()) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void OnAction(CoordinatorAction action);
  // Writes the next event, or ends the stream once all are written.
  void Proceed();

  MachineLoop& loop_;
  grpc::CallbackServerContext& context_;
  const CallEnded ended_;
  const CallId call_;

  Mutex mu_;
  // If `writing_`, the front is being written. A newer plan replaces a queued older one, so the
  // queue never holds more than three events.
  std::deque<Shared<v1::StepEvent>> events_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  // The status that ends the stream after the queued events.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  std::string holder_address_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;

  // Holds the bytes of the current write.
  grpc::ByteBuffer out_;

  std::shared_ptr<AwaitReactor> self_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_AWAIT_REACTOR_H_
