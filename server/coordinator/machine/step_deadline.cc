#include "server/coordinator/machine/step_deadline.h"

#include <algorithm>
#include <utility>

namespace kaon::coordinator {

namespace {

constexpr absl::Duration kAskEvery = absl::Seconds(1);
// A question takes some work of a shard.
constexpr absl::Duration kAskRarely = absl::Milliseconds(100);
// Part of the patience that an answer may be old.
constexpr int kPart = 10;

}  // namespace

void StepDeadline::OnStep(uint64_t timeline, uint64_t step) {
  const std::pair<uint64_t, uint64_t> named(timeline, step);
  if (named != step_) Reset();
  step_ = named;
}

void StepDeadline::Reset() {
  waits_.clear();
  OnRound();
}

void StepDeadline::OnRound() {
  // Honest workers may need as long again.
  for (auto& [rank, wait] : waits_) wait.in_round = absl::ZeroDuration();
  round_ = asked_ = absl::ZeroDuration();
  awaited_.clear();
}

void StepDeadline::OnRejoin(uint32_t rank) {
  Wait& wait = waits_[rank];
  if (++wait.rejoins > 1) wait.before += round_;
  OnRound();
}

void StepDeadline::OnAwaited(int shard, std::vector<uint32_t> ranks) {
  awaited_[shard] = {std::move(ranks), round_};
}

std::optional<uint32_t> StepDeadline::Owing() const {
  std::optional<uint32_t> lowest;
  for (const auto& [shard, awaited] : awaited_) {
    if (awaited.ranks.empty() || round_ - awaited.at > 2 * interval_) continue;
    if (!lowest || awaited.ranks.front() < *lowest) lowest = awaited.ranks.front();
  }
  return lowest;
}

std::vector<uint32_t> StepDeadline::Tick(absl::Duration passed, const std::vector<uint32_t>& ranks,
                                         bool in_round, absl::Duration patience) {
  interval_ = std::clamp(patience / kPart, kAskRarely, kAskEvery);
  if (in_round) round_ += passed;
  for (const uint32_t rank : ranks) {
    Wait& wait = waits_[rank];
    (in_round ? wait.in_round : wait.before) += passed;
  }
  std::vector<uint32_t> late;
  for (const auto& [rank, wait] : waits_) {
    // A rank that has ended rounds may end this one as well.
    const bool is_to_blame =
        wait.rejoins > 1 || std::binary_search(ranks.begin(), ranks.end(), rank);
    if (is_to_blame && wait.before + wait.in_round >= patience) late.push_back(rank);
  }
  return late;
}

bool StepDeadline::ShouldAsk() {
  if (round_ - asked_ < interval_) return false;
  asked_ = round_;
  return true;
}

}  // namespace kaon::coordinator
