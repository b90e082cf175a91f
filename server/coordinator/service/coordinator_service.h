// kaon.v1.Coordinator over gRPC's callback API: checks who calls, hands the request to the
// machine's loop, sends its answer. Owned by CoordinatorServer; called by gRPC's threads.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
#define KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/strings/string_view.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/service/call_ended.h"
#include "server/monitor/event_counts.h"

namespace kaon::coordinator {

// Trailing metadata that names the coordinator to ask instead, host:port.
inline constexpr char kHolderMetadata[] = "kaon-holder";

// Raw where all workers are told the same: it is serialized once.
class CoordinatorService
    : public v1::Coordinator::WithRawCallbackMethod_AwaitStep<v1::Coordinator::CallbackService> {
 public:
  // `loop` and `counts` outlive the service.
  CoordinatorService(MachineLoop& loop, monitor::EventCounts& counts)
      : loop_(loop), counts_(counts) {}

  // A worker's certificate must be bound to the job (if to any), and to the rank where there is one
  // (PERMISSION_DENIED). The other codes: coordinator.proto. Every call may be repeated, also to
  // another coordinator: RegisterJob needs no request id, as an equal definition is the same job.
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
  // To be told how a call to `method` ends: a refusal is counted, and logged with who called.
  CallEnded Noting(const grpc::CallbackServerContext* context, absl::string_view method);

  MachineLoop& loop_;
  monitor::EventCounts& counts_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
