// The calls behind kaonctl: one coordinator out of the endpoints answers, each call with its
// deadline. Owned by main; one thread.
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

// For one request and its repetitions; never 0.
uint64_t RandomRequestId();

// Every function asks the endpoints in order until one can be reached; UNAVAILABLE or
// DEADLINE_EXCEEDED with the last one's error when none can, otherwise the status of the call.
// Those that ask again do so until the timeout, which counts from the construction.
class AdminCalls {
 public:
  // Returns after so long.
  using Pause = std::function<void(absl::Duration)>;

  enum class WhileAway { kFail, kAskAgain };

  explicit AdminCalls(const Options& options, Pause pause = PauseFor);

  // What a change is compared with is asked for again while no coordinator can be reached.
  absl::StatusOr<v1::GetStatusResponse> GetStatus(WhileAway while_away = WhileAway::kFail) const;
  absl::StatusOr<v1::JobDescription> DescribeJob(WhileAway while_away = WhileAway::kFail) const;
  // All pages. INVALID_ARGUMENT for a filter that is no RE2.
  absl::StatusOr<std::vector<v1::ParameterRow>> ListParameters() const;
  absl::StatusOr<v1::StepHistoryResponse> StepHistory() const;
  // Of the parameter that the options name.
  absl::StatusOr<NamedStats> GetParameterStats() const;
  absl::StatusOr<NamedDiagnostics> GetParameterDiagnostics() const;
  // Follows to the coordinator that holds the shards, and asks again while there is none or none
  // can be reached: the request's id lets it be applied once.
  absl::StatusOr<v1::SetGroupResponse> SetGroup(const v1::SetGroupRequest& request) const;
  // DEADLINE_EXCEEDED when reading takes longer than the timeout.
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints() const;
  absl::StatusOr<v1::CheckpointSummary> VerifyCheckpoint() const;
  // Follows to the coordinator that holds the shards.
  absl::StatusOr<v1::CheckpointSummary> CreateCheckpoint() const;
  // As SetGroup.
  absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(
      const v1::RestoreCheckpointRequest& request) const;
  // Every endpoint, and every shard that the first reachable one names. Servers that cannot be
  // reached are rows, not errors; of those that do not serve it is asked why.
  std::vector<HealthRow> CheckHealth() const;

 private:
  // kHolder follows a refusal that says where the holder of the shards is.
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
