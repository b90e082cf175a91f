#include "server/admin_cli/shard_command.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"
#include "server/monitor/units.h"

namespace kaon::admin_cli {

using monitor::Seconds;

namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(200);
// For one call while another coordinator may be the one that answers.
constexpr double kPollSeconds = 5;

// Returns what the job waits for, from the answer to GetStatus.
std::string WaitsFor(const absl::StatusOr<v1::GetStatusResponse>& status) {
  return status.ok() ? status->phase() : status.status().ToString();
}

}  // namespace

absl::StatusOr<bool> IsBack(const v1::GetStatusResponse& status, uint32_t shard,
                            uint64_t position) {
  for (const v1::ShardStatus& row : status.shards()) {
    if (row.shard() != shard || !row.connected()) continue;
    const v1::ShardState& state = row.description().state();
    if (!state.data_loss().empty()) {
      return absl::DataLossError(absl::StrCat("shard ", shard, ": ", state.data_loss()));
    }
    if (state.applied_position() < position) {
      return absl::DataLossError(absl::StrCat(
          "shard ", shard, " is back at position ", state.applied_position(), ", it stopped at ",
          position, ": it was started on another data directory than before"));
    }
    return status.holder() && row.problem().empty();
  }
  return false;
}

absl::Status AwaitBack(const DrainedShard& drained, absl::Duration timeout,
                       const std::function<absl::StatusOr<v1::GetStatusResponse>()>& ask,
                       const AdminCalls::Pause& pause, std::ostream& progress) {
  const absl::Time end = SteadyNow() + timeout;
  std::string told;
  while (true) {
    const absl::StatusOr<v1::GetStatusResponse> status = ask();
    if (status.ok()) {
      KAON_ASSIGN_OR_RETURN(const bool back,
                            IsBack(*status, drained.shard, drained.stopped.position()));
      if (back) return absl::OkStatus();
    }
    const std::string waits = WaitsFor(status);
    if (SteadyNow() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("shard ", drained.shard, " is drained and not back after ",
                       absl::FormatDuration(timeout), "; is its supervisor to start it? ", waits));
    }
    if (waits != told) progress << "kaonctl: " << waits << std::endl;
    told = waits;
    pause(kPoll);
  }
}

absl::StatusOr<DrainedShard> DrainShard(const AdminCalls& calls, const Options& options,
                                        std::ostream& progress) {
  progress << "kaonctl: shard " << options.shard_index
           << ": waiting for the end of the open step and a snapshot" << std::endl;
  Options poll = options;
  poll.timeout_seconds = kPollSeconds;
  DrainedShard drained;
  drained.shard = options.shard_index;
  absl::StatusOr<v1::DrainShardResponse> stopped = calls.DrainShard();
  if (absl::IsDeadlineExceeded(stopped.status())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "shard ", drained.shard, " is not drained after ", Seconds(options.timeout_seconds),
        ", the job goes on: ", WaitsFor(AdminCalls(poll).GetStatus())));
  }
  KAON_ASSIGN_OR_RETURN(drained.stopped, std::move(stopped));
  if (!options.wait) return drained;
  progress << "kaonctl: " << DrainedText(drained) << std::flush;
  const absl::Time away = SteadyNow();
  KAON_RETURN_IF_ERROR(AwaitBack(
      drained, absl::Seconds(options.timeout_seconds),
      [&poll] { return AdminCalls(poll).GetHolderStatus(); }, PauseFor, progress));
  drained.away_seconds = absl::ToDoubleSeconds(SteadyNow() - away);
  return drained;
}

Json DrainedJson(const DrainedShard& drained) {
  return {{"shard", drained.shard},
          {"position", drained.stopped.position()},
          {"step", drained.stopped.step()},
          {"away_seconds", drained.away_seconds ? Json(*drained.away_seconds) : Json()}};
}

std::string DrainedText(const DrainedShard& drained) {
  const std::string text = absl::StrCat("shard ", drained.shard, ": stopped after step ",
                                        drained.stopped.step(), " with a snapshot of it");
  if (!drained.away_seconds) return absl::StrCat(text, "\n");
  return absl::StrCat(text, ", back after ", Seconds(*drained.away_seconds), "\n");
}

}  // namespace kaon::admin_cli
