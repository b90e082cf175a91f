// The gRPC services of a shard; they only translate. Data-plane calls become PushStream and
// PullStream, control streams become ControlStream. All other calls query the StepLoop or the
// ShmEndpoint. Owned by ShardServer; called by gRPC's threads.
#ifndef KAON_SERVER_SHARD_TRANSPORT_SHARD_SERVICE_H_
#define KAON_SERVER_SHARD_TRANSPORT_SHARD_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "kaon/v1/shard_control.grpc.pb.h"
#include "kaon/v1/shard_data.grpc.pb.h"
#include "kaon/v1/shard_local.grpc.pb.h"
#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "server/monitor/event_counts.h"
#include "server/shard/step_loop.h"
#include "server/shard/transport/nccl_endpoint.h"
#include "server/shard/transport/pull_admission.h"
#include "server/shard/transport/shm_endpoint.h"

namespace kaon::shard {

// Both methods are raw: tensor bytes are read and written as slices, without the generated parser.
class ShardDataService : public v1::ShardData::WithRawCallbackMethod_Push<
                             v1::ShardData::WithRawCallbackMethod_Pull<v1::ShardData::Service>> {
 public:
  // All outlive the service. Null `nccl`: payloads travel over gRPC. `memory_bytes` is the shard's
  // budget, of which pulls get a part.
  ShardDataService(StepLoop& loop, NcclEndpoint* nccl, uint64_t memory_bytes)
      : loop_(loop), nccl_(nccl), pulls_(PullAdmission::Share(memory_bytes)) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;
  PullAdmission& pulls() { return pulls_; }

 private:
  StepLoop& loop_;
  NcclEndpoint* const nccl_;
  PullAdmission pulls_;
};

// Pull is raw: the generated parser would take a message of 64 MiB before any check.
class ShardNcclService : public v1::ShardNccl::WithCallbackMethod_OpenSession<
                             v1::ShardNccl::WithRawCallbackMethod_Pull<v1::ShardNccl::Service>> {
 public:
  // All outlive the service. Null `endpoint`: no sessions. `data` admits its pulls.
  ShardNcclService(StepLoop& loop, NcclEndpoint* endpoint, ShardDataService& data)
      : loop_(loop), endpoint_(endpoint), data_(data) {}

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenNcclSessionRequest* request,
                                        v1::OpenNcclSessionResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;

 private:
  StepLoop& loop_;
  NcclEndpoint* const endpoint_;
  ShardDataService& data_;
};

class ShardLocalService : public v1::ShardLocal::CallbackService {
 public:
  // Both outlive the service. Null `endpoint`: no sessions.
  ShardLocalService(ShmEndpoint* endpoint, monitor::EventCounts& counts)
      : endpoint_(endpoint), counts_(counts) {}

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override;

 private:
  ShmEndpoint* const endpoint_;
  monitor::EventCounts& counts_;
};

class ShardControlService : public v1::ShardControl::CallbackService {
 public:
  // Both outlive the service. Null `nccl`: no sessions to describe.
  ShardControlService(StepLoop& loop, const NcclEndpoint* nccl) : loop_(loop), nccl_(nccl) {}

  grpc::ServerBidiReactor<v1::CoordinatorToShard, v1::ShardToCoordinator>* Control(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ReadHistory(grpc::CallbackServerContext* context,
                                        const v1::ReadHistoryRequest* request,
                                        v1::ReadHistoryResponse* response) override;
  grpc::ServerUnaryReactor* DescribeShard(grpc::CallbackServerContext* context,
                                          const v1::DescribeShardRequest* request,
                                          v1::DescribeShardResponse* response) override;
  grpc::ServerUnaryReactor* GetParameterStats(grpc::CallbackServerContext* context,
                                              const v1::ShardParameterRequest* request,
                                              v1::ParameterStats* response) override;
  grpc::ServerUnaryReactor* GetParameterDiagnostics(grpc::CallbackServerContext* context,
                                                    const v1::ShardParameterRequest* request,
                                                    v1::ParameterDiagnostics* response) override;
  grpc::ServerUnaryReactor* ReadParameterHistory(grpc::CallbackServerContext* context,
                                                 const v1::ShardParameterRequest* request,
                                                 v1::ParameterHistory* response) override;
  grpc::ServerUnaryReactor* ReadSlice(grpc::CallbackServerContext* context,
                                      const v1::ShardSliceRequest* request,
                                      v1::TensorSlice* response) override;

 private:
  StepLoop& loop_;
  const NcclEndpoint* const nccl_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHARD_SERVICE_H_
