#include "server/coordinator/machine/requests/drains.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/config/durability.h"

namespace kaon::coordinator {

namespace {

// Returns why the shard takes no part at the moment; empty if it does.
std::string WhyAway(const ShardView& view, absl::Duration patience) {
  if (!view.connected) {
    return view.ended.ok() ? "is not connected"
                           : absl::StrCat("is not connected: ", view.ended.ToString());
  }
  if (view.silence <= patience) return "";
  return absl::StrCat("was not heard for ", absl::FormatDuration(view.silence));
}

}  // namespace

absl::Status Drains::Check(uint32_t shard, const std::vector<ShardView>& shards,
                           absl::Duration patience) const {
  if (shard >= shards.size()) {
    return absl::NotFoundError(
        absl::StrCat("shard ", shard, ": the shards are 0 .. ", shards.size() - 1));
  }
  if (run_ && run_->stage != Stage::kAway) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", run_->shard, " is being drained: drain shards one after the other"));
  }
  const std::string away = WhyAway(shards[shard], patience);
  if (!away.empty()) return absl::UnavailableError(absl::StrCat("shard ", shard, " ", away));
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string other = WhyAway(shards[i], patience);
    if (other.empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("shard ", i, " ", other, ": drain shard ", shard, " once it is back"));
  }
  const v1::ShardState state = shards[shard].state.value_or(v1::ShardState());
  if (state.durability() == v1::DURABILITY_MODE_JOURNAL) return absl::OkStatus();
  const bool interval = state.durability() == v1::DURABILITY_MODE_INTERVAL;
  return absl::FailedPreconditionError(absl::StrCat(
      "shard ", shard, " has durability ",
      config::DurabilityText(state.durability(), state.interval_steps()), ", must have journal: ",
      interval ? "its restart rolls the job back to a snapshot; end it by SIGTERM if it may"
               : "its restart loses the state; take a checkpoint, then restore it"));
}

void Drains::Start(CallId call, uint32_t shard) {
  run_ = Run{call, static_cast<int>(shard), random_(), Stage::kSnapshot};
}

std::optional<int> Drains::shard() const {
  if (!run_) return std::nullopt;
  return run_->shard;
}

std::optional<v1::Drain> Drains::Ask() const {
  if (!run_ || run_->stage == Stage::kAway) return std::nullopt;
  v1::Drain order;
  order.set_attempt(run_->attempt);
  order.set_end(run_->stage == Stage::kEnding);
  return order;
}

Actions Drains::OnReport(int shard, const v1::DrainReport& report) {
  if (!run_ || run_->shard != shard || run_->attempt != report.attempt()) return {};
  if (run_->stage != Stage::kSnapshot) return {};
  if (report.error_code() != 0) {
    return End(absl::Status(static_cast<absl::StatusCode>(report.error_code()),
                            absl::StrCat("shard ", shard, ": ", report.error())));
  }
  if (report.ready()) run_->stage = Stage::kEnding;
  return {};
}

Actions Drains::OnRefused(int shard, const v1::Refused& refused) {
  // A refusal of any other order names its position.
  if (!run_ || run_->shard != shard || refused.position() != 0) return {};
  if (run_->stage != Stage::kSnapshot || refused.reason() != v1::REFUSAL_REASON_INVALID) return {};
  return End(absl::FailedPreconditionError(
      absl::StrCat("shard ", shard, " is of a version without drain: ", refused.detail(),
                   "; end it by SIGTERM")));
}

Actions Drains::OnDisconnected(int shard, const absl::Status& why, const JobState& job) {
  if (!run_ || run_->shard != shard) return {};
  if (run_->stage == Stage::kSnapshot) {
    return End(absl::UnavailableError(
        absl::StrCat("shard ", shard, " was lost before it was drained: ", why.ToString())));
  }
  run_->stage = Stage::kAway;
  const std::optional<CallId> call = std::exchange(run_->call, std::nullopt);
  if (!call) return {};
  v1::DrainShardResponse response;
  response.set_position(job.position);
  response.set_step(job.applied_step);
  return {ReplyDrain{*call, std::move(response), ""}};
}

void Drains::OnConnected(int shard) {
  if (run_ && run_->shard == shard && run_->stage == Stage::kAway) run_.reset();
}

Actions Drains::End(const absl::Status& status) {
  if (!run_ || run_->stage == Stage::kAway) return {};
  const std::optional<CallId> call = run_->call;
  run_.reset();
  if (!call) return {};
  return {ReplyDrain{*call, status, ""}};
}

void Drains::Cancel(CallId call) {
  if (!run_ || run_->call != call) return;
  run_->call.reset();
  if (run_->stage == Stage::kSnapshot) run_.reset();
}

}  // namespace kaon::coordinator
