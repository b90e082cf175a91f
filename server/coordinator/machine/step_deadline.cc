#include "server/coordinator/machine/step_deadline.h"

#include <algorithm>
#include <utility>

namespace kaon::coordinator {

namespace {

constexpr absl::Duration kAskEvery = absl::Seconds(1);

}  // namespace

void StepDeadline::OnStep(uint64_t timeline, uint64_t step) {
  const std::pair<uint64_t, uint64_t> named(timeline, step);
  if (named != step_) waits_.clear();
  step_ = named;
}

void StepDeadline::Settle() {
  for (auto& [rank, wait] : waits_) wait.before += std::exchange(wait.in_round, {});
  round_ = asked_ = absl::ZeroDuration();
  awaited_.clear();
}

void StepDeadline::OnRound() { Settle(); }

void StepDeadline::OnRejoin(uint32_t rank) {
  Wait& wait = waits_[rank];
  if (++wait.rejoins > 1) {
    for (auto& [other, others] : waits_) others.in_round = absl::ZeroDuration();
    wait.in_round = round_;
  }
  Settle();
}

void StepDeadline::OnAwaited(int shard, std::vector<uint32_t> ranks) {
  awaited_[shard] = std::move(ranks);
}

std::optional<uint32_t> StepDeadline::Owing() const {
  std::optional<uint32_t> lowest;
  for (const auto& [shard, ranks] : awaited_) {
    if (!ranks.empty() && (!lowest || ranks.front() < *lowest)) lowest = ranks.front();
  }
  return lowest;
}

std::vector<uint32_t> StepDeadline::Tick(absl::Duration passed, const std::vector<uint32_t>& ranks,
                                         bool in_round, absl::Duration patience) {
  if (in_round) round_ += passed;
  for (const uint32_t rank : ranks) {
    Wait& wait = waits_[rank];
    (in_round ? wait.in_round : wait.before) += passed;
  }
  std::vector<uint32_t> late;
  for (const auto& [rank, wait] : waits_) {
    // A rank that has ended rounds may end this one as well.
    const bool is_to_blame = wait.rejoins > 1 || std::count(ranks.begin(), ranks.end(), rank) > 0;
    if (is_to_blame && wait.before + wait.in_round >= patience) late.push_back(rank);
  }
  return late;
}

bool StepDeadline::ShouldAsk() {
  if (round_ - asked_ < kAskEvery) return false;
  asked_ = round_;
  return true;
}

}  // namespace kaon::coordinator
