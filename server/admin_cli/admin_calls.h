// The calls behind kaonctl: one coordinator out of the endpoints answers, each call with its
// deadline. Owned by main; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_
#define KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/admin_cli/options.h"
#include "server/admin_cli/parameter_command.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

// Every function asks the endpoints in order until one can be reached; UNAVAILABLE or
// DEADLINE_EXCEEDED with the last one's error when none can, otherwise the status of the call.
class AdminCalls {
 public:
  explicit AdminCalls(const Options& options) : options_(options) {}

  absl::StatusOr<v1::GetStatusResponse> GetStatus() const;
  absl::StatusOr<v1::JobDescription> DescribeJob() const;
  // All pages. INVALID_ARGUMENT for a filter that is no RE2.
  absl::StatusOr<std::vector<v1::ParameterRow>> ListParameters() const;
  absl::StatusOr<v1::StepHistoryResponse> StepHistory() const;
  // Of the parameter that the options name.
  absl::StatusOr<NamedStats> GetParameterStats() const;
  absl::StatusOr<NamedDiagnostics> GetParameterDiagnostics() const;
  // Follows to the coordinator that holds the shards. A call whose answer was lost may be in place:
  // ABORTED says so when it is asked again.
  absl::StatusOr<v1::SetGroupResponse> SetGroup(const v1::SetGroupRequest& request) const;
  // DEADLINE_EXCEEDED when reading takes longer than the timeout.
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints() const;
  absl::StatusOr<v1::CheckpointSummary> VerifyCheckpoint() const;
  // Both follow to the coordinator that holds the shards, as SetGroup.
  absl::StatusOr<v1::CheckpointSummary> CreateCheckpoint() const;
  absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(
      const v1::RestoreCheckpointRequest& request) const;
  // Every endpoint, and every shard that the first reachable one names. Servers that cannot be
  // reached are rows, not errors.
  std::vector<HealthRow> CheckHealth() const;

 private:
  const Options& options_;
};

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_ADMIN_CALLS_H_
