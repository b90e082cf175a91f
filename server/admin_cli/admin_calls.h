// The calls behind kaonctl. Each call has a deadline, and one of the given coordinators answers it.
// Owned by main; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_
#define KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/parameter_command.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

void PauseFor(absl::Duration duration);

// Returns a random id for one request and its retries; never 0.
uint64_t RandomRequestId();

// Every function asks the endpoints in order until it reaches one. If it reaches none, it returns
// the last error, UNAVAILABLE or DEADLINE_EXCEEDED. Otherwise it returns the status of the call.
// Functions that retry do so until the timeout, which starts at construction.
class AdminCalls {
 public:
  // Returns after the given time.
  using Pause = std::function<void(absl::Duration)>;

  enum class WhileAway { kFail, kAskAgain };

  explicit AdminCalls(const Options& options, Pause pause = PauseFor);

  // kAskAgain retries while no coordinator can be reached. Use it to read the value that a change
  // is compared with.
  absl::StatusOr<v1::GetStatusResponse> GetStatus(WhileAway while_away = WhileAway::kFail) const;
  // Like GetStatus. If the options name a job: NOT_FOUND for another one, UNAVAILABLE if no shard
  // told which job runs.
  absl::StatusOr<v1::GetStatusResponse> GetJobStatus() const;
  // Like GetJobStatus, of the coordinator that holds the shards: it alone knows the workers.
  // UNAVAILABLE if no coordinator holds them.
  absl::StatusOr<v1::GetStatusResponse> GetHolderStatus() const;
  // Asks the shard of the options itself. UNAVAILABLE names its address.
  absl::StatusOr<v1::ShardStatus> DescribeShard() const;
  absl::StatusOr<v1::JobDescription> DescribeJob(WhileAway while_away = WhileAway::kFail) const;
  // Describes `job`; NOT_FOUND for another one.
  absl::StatusOr<v1::JobDescription> DescribeJob(const std::string& job,
                                                 WhileAway while_away) const;
  // Reads all pages. INVALID_ARGUMENT if the filter is no RE2.
  absl::StatusOr<std::vector<v1::ParameterRow>> ListParameters() const;
  absl::StatusOr<v1::StepHistoryResponse> StepHistory() const {
    return StepHistory(options_.limit);
  }
  absl::StatusOr<v1::StepHistoryResponse> StepHistory(uint32_t limit) const;
  // Both read the parameter that the options name.
  absl::StatusOr<NamedStats> GetParameterStats() const;
  absl::StatusOr<NamedDiagnostics> GetParameterDiagnostics() const;
  absl::StatusOr<NamedHistory> GetParameterHistory() const;
  // DATA_LOSS if the values are not those of the checksum.
  absl::StatusOr<NamedSlice> ReadSlice() const;
  // Follows the redirect to the coordinator that holds the shards. Retries while there is none or
  // none can be reached; thanks to the request's id the change is applied once.
  absl::StatusOr<v1::SetGroupResponse> SetGroup(const v1::SetGroupRequest& request) const;
  absl::StatusOr<v1::ListJobsResponse> ListJobs() const;
  // Redirects and retries like SetGroup.
  absl::StatusOr<v1::DeleteJobResponse> DeleteJob(const v1::DeleteJobRequest& request) const;
  // Ends the shard of the options. Follows the redirect to the coordinator that holds the shards.
  absl::StatusOr<v1::DrainShardResponse> DrainShard() const;
  // DEADLINE_EXCEEDED if reading takes longer than the timeout.
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints() const;
  absl::StatusOr<v1::CheckpointSummary> VerifyCheckpoint() const;
  // Follows the redirect to the coordinator that holds the shards.
  absl::StatusOr<v1::CheckpointSummary> CreateCheckpoint() const;
  absl::StatusOr<v1::CheckpointSummary> DeleteCheckpoint() const;
  // Redirects and retries like SetGroup.
  absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(
      const v1::RestoreCheckpointRequest& request) const;
  // Checks every endpoint, and every shard that the first reachable endpoint names. An unreachable
  // server is a row, not an error. Asks a server that is not serving for the reason. If the options
  // name a shard, checks it alone.
  HealthReport CheckHealth() const;

 private:
  // kHolder follows a refusal that names the holder of the shards.
  enum class To { kAny, kHolder };

  // Calls `method` of v1::Admin::Stub.
  template <typename Response, typename Method, typename Request>
  absl::StatusOr<Response> Call(Method method, const Request& request, To to = To::kAny,
                                WhileAway while_away = WhileAway::kFail) const;

  const Options& options_;
  const Pause pause_;
  const absl::Time end_;
};

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_
