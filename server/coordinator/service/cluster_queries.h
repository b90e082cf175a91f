// The queries behind the Admin service and the status page, which change nothing. They ask the
// machine's loop for a snapshot and every shard for its state, within a deadline. Owned by
// CoordinatorServer; any thread.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_CLUSTER_QUERIES_H_
#define KAON_SERVER_COORDINATOR_SERVICE_CLUSTER_QUERIES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "server/coordinator/checkpoint/checkpoint_keeper.h"
#include "server/coordinator/cluster_view.h"
#include "server/coordinator/decision_times.h"
#include "server/coordinator/machine_loop.h"
#include "server/coordinator/shard_link.h"
#include "server/monitor/event_counts.h"
#include "server/monitor/service_health.h"
#include "server/monitor/wall_clock.h"

namespace kaon::coordinator {

// A person waits for the answer, and one dead shard must not hide the others.
inline constexpr absl::Duration kShardTimeout = absl::Seconds(2);

class ClusterQueries {
 public:
  // Receives the answer, once, on a thread of gRPC, of the loop or of the caller.
  template <typename Response>
  using Done = std::function<void(absl::StatusOr<Response> response)>;
  using ShardLinks = std::vector<std::unique_ptr<ShardLink>>;

  // `addresses` are the addresses of the shards, by index. All other arguments outlive the queries.
  ClusterQueries(MachineLoop& loop, const ShardLinks& links, std::vector<std::string> addresses,
                 CheckpointKeeper& checkpoints, const monitor::ServiceHealth& health,
                 const monitor::EventCounts& counts, const DecisionTimes& decision_times);

  // Asks every shard for its state.
  void Gather(std::function<void(ClusterView)> done) const;

  // Each answers as the call of the Admin service with the same request (admin.proto). Requests are
  // copied.
  void Status(Done<v1::GetStatusResponse> done) const;
  void Parameters(const v1::ListParametersRequest& request,
                  Done<v1::ListParametersResponse> done) const;
  void History(const v1::StepHistoryRequest& request, Done<v1::StepHistoryResponse> done) const;
  void Job(const std::string& job, Done<v1::JobDescription> done) const;
  void Checkpoints(const std::string& job, Done<v1::ListCheckpointsResponse> done) const;
  void ParameterStats(const v1::GetParameterStatsRequest& request,
                      Done<v1::GetParameterStatsResponse> done) const;
  void ParameterDiagnostics(const v1::GetParameterDiagnosticsRequest& request,
                            Done<v1::GetParameterDiagnosticsResponse> done) const;
  void ParameterHistory(const v1::GetParameterHistoryRequest& request,
                        Done<v1::GetParameterHistoryResponse> done) const;
  void Slice(const v1::ReadSliceRequest& request, Done<v1::ReadSliceResponse> done) const;

  // Returns up to `limit` records of the only job from `from_position` on, oldest first.
  void Records(uint64_t from_position, uint32_t limit, Done<v1::StepHistoryResponse> done) const;

 private:
  // Finds the parameter that `request` names, and calls `method` on the shard that holds it. `ask`
  // gets the job and the parameter's id.
  template <typename Request, typename Ask, typename Response, typename Answer>
  void AskShard(const Request& request, Ask ask,
                void (ShardLink::*method)(const Ask&, absl::Duration, ShardLink::Callback<Answer>),
                Answer* (Response::*mutable_answer)(), Done<Response> done) const;
  // Adds records and phases as `read` and `with_phases` say.
  void ReadRecords(int shard, const v1::ReadHistoryRequest& read, bool with_phases,
                   const Done<v1::StepHistoryResponse>& done) const;

  MachineLoop& loop_;
  const ShardLinks& links_;
  const std::vector<std::string> addresses_;
  const int64_t started_unix_millis_ = monitor::UnixMillisNow();
  CheckpointKeeper& checkpoints_;
  const monitor::ServiceHealth& health_;
  const monitor::EventCounts& counts_;
  const DecisionTimes& decision_times_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_CLUSTER_QUERIES_H_
