// Serves kaon.v1.Coordinator with gRPC's callback API: checks the caller, hands the request to the
// machine's loop, and sends the answer. Owned by CoordinatorServer; called by gRPC's threads.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
#define KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/service/call_ended.h"
#include "server/coordinator/service/costly_calls.h"
#include "server/monitor/event_counts.h"

namespace kaon::coordinator {

// Trailing metadata: host:port of the coordinator to ask instead.
inline constexpr char kHolderMetadata[] = "kaon-holder";

// AwaitStep is raw: all workers get the same event, so it is serialized once.
class CoordinatorService
    : public v1::Coordinator::WithRawCallbackMethod_AwaitStep<v1::Coordinator::CallbackService> {
 public:
  // `loop` and `counts` must outlive the service.
  CoordinatorService(MachineLoop& loop, monitor::EventCounts& counts)
      : loop_(loop), counts_(counts) {}

  // Calls `on_begin` with every BeginStep of the open step that is answered with OK. Call it before
  // the server starts.
  void OnBegin(std::function<void(const v1::BeginStepRequest&)> on_begin) {
    on_begin_ = std::move(on_begin);
  }

  // PERMISSION_DENIED unless the worker's certificate is bound to the request's job (or to none)
  // and, if the request has a rank, to that rank. Other codes: coordinator.proto.
  //
  // A caller may repeat every call, also at another coordinator. RegisterJob needs no request id,
  // because an equal definition is the same job.
  grpc::ServerUnaryReactor* RegisterJob(grpc::CallbackServerContext* context,
                                        const v1::RegisterJobRequest* request,
                                        v1::JobDescription* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::JobDescription* response) override;
  grpc::ServerUnaryReactor* JoinWorker(grpc::CallbackServerContext* context,
                                       const v1::JoinWorkerRequest* request,
                                       v1::JoinWorkerResponse* response) override;
  grpc::ServerUnaryReactor* BeginStep(grpc::CallbackServerContext* context,
                                      const v1::BeginStepRequest* request,
                                      v1::BeginStepResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* AwaitStep(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request) override;

 private:
  // Returns a callback for the end of a call to `method`. It counts a refusal and logs it with the
  // caller's name.
  CallEnded Noting(const grpc::CallbackServerContext* context, absl::string_view method);

  // Asks the machine a question that takes it long, as the caller's share of its time allows.
  template <typename Request, typename Answer>
  grpc::ServerUnaryReactor* AskCostly(const grpc::CallbackServerContext& context, CallId call,
                                      absl::Status authorized,
                                      void (StepMachine::*question)(CallId, const Request&),
                                      const Request& request, const Answer& answer);

  // Runs `then` after `wait`, or at once if many calls are held back already.
  void HoldBack(absl::Duration wait, std::function<void()> then);

  MachineLoop& loop_;
  monitor::EventCounts& counts_;
  // Empty if nobody wants to know.
  std::function<void(const v1::BeginStepRequest&)> on_begin_;
  std::atomic<int> held_back_{0};
  const std::shared_ptr<CostlyCalls> costly_ = std::make_shared<CostlyCalls>();
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
