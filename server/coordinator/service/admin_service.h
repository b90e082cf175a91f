// kaon.v1.Admin over gRPC's callback API: asks the machine's loop for its snapshot and every shard
// for its state, within a deadline, and shows both; hands changes to the machine. Owned by
// CoordinatorServer; called by gRPC's threads.
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
#include "server/coordinator/service/request_lookup.h"
#include "server/coordinator/service/unary_call.h"
#include "server/coordinator/shard_link.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"

namespace kaon::coordinator {

class AdminService : public v1::Admin::CallbackService {
 public:
  using ShardLinks = std::vector<std::unique_ptr<ShardLink>>;

  // All but `addresses` outlive the service; they are the shards', by index.
  AdminService(MachineLoop& loop, const ShardLinks& links, std::vector<std::string> addresses,
               CheckpointKeeper& checkpoints, const monitor::ServiceHealth& health,
               monitor::EventCounts& counts);

  // RESOURCE_EXHAUSTED when the coordinator has too many requests waiting. Other codes:
  // admin.proto.
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
  grpc::ServerUnaryReactor* GetParameterStats(grpc::CallbackServerContext* context,
                                              const v1::GetParameterStatsRequest* request,
                                              v1::GetParameterStatsResponse* response) override;
  grpc::ServerUnaryReactor* GetParameterDiagnostics(
      grpc::CallbackServerContext* context, const v1::GetParameterDiagnosticsRequest* request,
      v1::GetParameterDiagnosticsResponse* response) override;
  grpc::ServerUnaryReactor* CreateCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::CreateCheckpointRequest* request,
                                             v1::CreateCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::VerifyCheckpointRequest* request,
                                             v1::VerifyCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* RestoreCheckpoint(grpc::CallbackServerContext* context,
                                              const v1::RestoreCheckpointRequest* request,
                                              v1::RestoreCheckpointResponse* response) override;

 private:
  void Gather(std::function<void(ClusterView)> done);
  // To be told of the answer to an admin's request, which is logged with who made it.
  CallEnded Act(const grpc::CallbackServerContext& context, std::string what);
  // Ends, once, a call to `method` that only asks; a refusal is counted, and logged with who asked.
  using Finish = std::function<void(const absl::Status& status)>;
  Finish Finishing(const grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                   absl::string_view method);
  // A restore that was asked for, and the way of its answer.
  struct RestoreCall {
    WaitingReactor* reactor = nullptr;
    UnaryAnswer<ReplyRestore, v1::RestoreCheckpointResponse> answer;
    // Lives until the answer.
    const v1::RestoreCheckpointRequest* request = nullptr;
  };
  // Reads the checkpoint and hands it to the machine; `timeline` as in RestoreOrder.
  void Restore(const RestoreCall& restore, uint64_t timeline);
  // As the entry that came of the same request was; the log does not know what was skipped then.
  void AnswerRestored(const RestoreCall& restore, const v1::StepPlan& plan);
  // Looks for the entry of a request among the control entries after `after`, from `newest` on.
  void FindRequest(uint64_t request_id, uint64_t newest, uint64_t after, RequestLookup::Done done);
  // Finds the parameter that `request` names and asks the shard that holds it by `method`.
  template <typename Request, typename Response, typename Answer>
  void AskShard(const Finish& finish, const Request& request, Response* response,
                void (ShardLink::*method)(const v1::ShardParameterRequest&, absl::Duration,
                                          ShardLink::Callback<Answer>),
                Answer* (Response::*mutable_answer)());

  MachineLoop& loop_;
  const ShardLinks& links_;
  const std::vector<std::string> addresses_;
  CheckpointKeeper& checkpoints_;
  const monitor::ServiceHealth& health_;
  monitor::EventCounts& counts_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_ADMIN_SERVICE_H_
