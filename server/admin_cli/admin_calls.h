// The calls behind kaonctl, each with its deadline. Any one coordinator of the endpoints answers.
// Not thread-safe. Owned by main.
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

// Returns a random id, never 0, for one request and its retries.
uint64_t RandomRequestId();

// Each function asks the endpoints in order until it reaches one. If it reaches none, it returns
// the last one's UNAVAILABLE or DEADLINE_EXCEEDED; otherwise the status of the call. Functions that
// retry do so until the timeout, which counts from the construction.
class AdminCalls {
 public:
  // Sleeps for the duration.
  using Pause = std::function<void(absl::Duration)>;

  enum class WhileAway { kFail, kAskAgain };

  explicit AdminCalls(const Options& options, Pause pause = PauseFor);

  // With kAskAgain these retry while no coordinator can be reached; a change reads the value to
  // compare with this way.
  absl::StatusOr<v1::GetStatusResponse> GetStatus(WhileAway while_away = WhileAway::kFail) const;
  absl::StatusOr<v1::JobDescription> DescribeJob(WhileAway while_away = WhileAway::kFail) const;
  // Returns all pages. INVALID_ARGUMENT for a filter that is not valid RE2.
  absl::StatusOr<std::vector<v1::ParameterRow>> ListParameters() const;
  absl::StatusOr<v1::StepHistoryResponse> StepHistory() const;
  // Return the facts of the parameter that the options name.
  absl::StatusOr<NamedStats> GetParameterStats() const;
  absl::StatusOr<NamedDiagnostics> GetParameterDiagnostics() const;
  // Follows redirects to the coordinator that holds the shards. Retries while there is none or it
  // cannot be reached; the request's id makes sure that the change is applied only once.
  absl::StatusOr<v1::SetGroupResponse> SetGroup(const v1::SetGroupRequest& request) const;
  // DEADLINE_EXCEEDED if reading takes longer than the timeout.
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints() const;
  absl::StatusOr<v1::CheckpointSummary> VerifyCheckpoint() const;
  // Follows redirects to the coordinator that holds the shards.
  absl::StatusOr<v1::CheckpointSummary> CreateCheckpoint() const;
  // Retries like SetGroup.
  absl::StatusOr<v1::RestoreCheckpointResponse> RestoreCheckpoint(
      const v1::RestoreCheckpointRequest& request) const;
  // Asks every endpoint, and every shard that the first reachable one names. A server that cannot
  // be reached gives a row, not an error. For a server that is not serving, also asks for the
  // reason.
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
