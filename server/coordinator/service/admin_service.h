// Serves kaon.v1.Admin with gRPC's callback API. ClusterQueries answers queries. Changes go to the
// machine. Owned by CoordinatorServer; called by gRPC's threads.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_ADMIN_SERVICE_H_
#define KAON_SERVER_COORDINATOR_SERVICE_ADMIN_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/admin.pb.h"
#include "server/coordinator/checkpoint/checkpoint_keeper.h"
#include "server/coordinator/cluster_view.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/service/call_ended.h"
#include "server/coordinator/service/cluster_queries.h"
#include "server/coordinator/service/request_lookup.h"
#include "server/coordinator/service/unary_call.h"
#include "server/coordinator/shard_link.h"
#include "server/monitor/event_counts.h"

namespace kaon::coordinator {

class AdminService : public v1::Admin::CallbackService {
 public:
  using ShardLinks = ClusterQueries::ShardLinks;

  // All arguments must outlive the service.
  AdminService(MachineLoop& loop, const ShardLinks& links, const ClusterQueries& queries,
               CheckpointKeeper& checkpoints, monitor::EventCounts& counts);

  // RESOURCE_EXHAUSTED if too many requests wait in the coordinator. Other codes: admin.proto.
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* DescribeJob(grpc::CallbackServerContext* context,
                                        const v1::DescribeJobRequest* request,
                                        v1::JobDescription* response) override;
  grpc::ServerUnaryReactor* ListParameters(grpc::CallbackServerContext* context,
                                           const v1::ListParametersRequest* request,
                                           v1::ListParametersResponse* response) override;
  grpc::ServerUnaryReactor* StepHistory(grpc::CallbackServerContext* context,
                                        const v1::StepHistoryRequest* request,
                                        v1::StepHistoryResponse* response) override;
  grpc::ServerUnaryReactor* SetGroup(grpc::CallbackServerContext* context,
                                     const v1::SetGroupRequest* request,
                                     v1::SetGroupResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetParameterStats(grpc::CallbackServerContext* context,
                                              const v1::GetParameterStatsRequest* request,
                                              v1::GetParameterStatsResponse* response) override;
  grpc::ServerUnaryReactor* GetParameterDiagnostics(
      grpc::CallbackServerContext* context, const v1::GetParameterDiagnosticsRequest* request,
      v1::GetParameterDiagnosticsResponse* response) override;
  grpc::ServerUnaryReactor* GetParameterHistory(grpc::CallbackServerContext* context,
                                                const v1::GetParameterHistoryRequest* request,
                                                v1::GetParameterHistoryResponse* response) override;
  grpc::ServerUnaryReactor* ReadSlice(grpc::CallbackServerContext* context,
                                      const v1::ReadSliceRequest* request,
                                      v1::ReadSliceResponse* response) override;
  grpc::ServerUnaryReactor* CreateCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CreateCheckpointRequest* request,
                                             v1::CreateCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::VerifyCheckpointRequest* request,
                                             v1::VerifyCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* DeleteCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::DeleteCheckpointRequest* request,
                                             v1::DeleteCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* RestoreCheckpoint(grpc::CallbackServerContext* context,
                                              const v1::RestoreCheckpointRequest* request,
                                              v1::RestoreCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* DrainShard(grpc::CallbackServerContext* context,
                                       const v1::DrainShardRequest* request,
                                       v1::DrainShardResponse* response) override;

 private:
  void Gather(std::function<void(ClusterView)> done);
  // Returns a callback for the answer to an admin's request. It logs the answer with the caller's
  // name.
  CallEnded Act(const grpc::CallbackServerContext& context, std::string what);
  // Ends a query exactly once. Counts a refusal and logs it with the caller's name and the
  // `method`.
  using Finish = std::function<void(const absl::Status& status)>;
  Finish Finishing(const grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                   absl::string_view method);
  // Returns a callback for the answer to a query, which Finishing ends.
  template <typename Response>
  ClusterQueries::Done<Response> Answering(const grpc::CallbackServerContext* context,
                                           grpc::ServerUnaryReactor* reactor,
                                           absl::string_view method, Response* response) {
    return
        [finish = Finishing(context, reactor, method), response](absl::StatusOr<Response> answer) {
          if (answer.ok()) *response = *std::move(answer);
          finish(answer.status());
        };
  }
  // A requested restore and the means to answer it.
  struct RestoreCall {
    WaitingReactor* reactor = nullptr;
    UnaryAnswer<ReplyRestore, v1::RestoreCheckpointResponse> answer;
    // Lives until the answer.
    const v1::RestoreCheckpointRequest* request = nullptr;
  };
  // Reads the checkpoint and hands it to the machine; `timeline` as in RestoreOrder.
  void Restore(const RestoreCall& restore, uint64_t timeline);
  // Answers as the first try of the request was answered, from its entry `plan`. The log does not
  // record the skipped checkpoints, so the answer has none.
  void AnswerRestored(const RestoreCall& restore, const v1::StepPlan& plan);
  // Searches the control entries after `after`, from `newest` backwards, for the entry of a
  // request.
  void FindRequest(uint64_t request_id, uint64_t newest, uint64_t after, RequestLookup::Done done);
  MachineLoop& loop_;
  const ShardLinks& links_;
  const ClusterQueries& queries_;
  CheckpointKeeper& checkpoints_;
  monitor::EventCounts& counts_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_ADMIN_SERVICE_H_
