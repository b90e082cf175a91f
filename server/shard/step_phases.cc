#include "server/shard/step_phases.h"

#include <algorithm>
#include <utility>

namespace kaon::shard {

namespace {

constexpr const char* kNames[kNumPhases] = {"receive",   "fold",   "journal", "prepare",
                                            "speculate", "decide", "apply",   "pull"};

// Readers of older versions than these are late, and no part of a step.
constexpr size_t kMostRecent = 8;

uint64_t Microseconds(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

}  // namespace

void StepPhases::Begin(uint64_t position, uint64_t step) {
  const absl::Time now = now_();
  MutexLock lock(mu_);
  if (!steps_.empty() && steps_.back().position >= position) return;
  Step& begun = steps_.emplace_back();
  begun.position = position;
  begun.step = step;
  begun.begun = now;
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

StepPhases::Step* StepPhases::FindLocked(std::optional<uint64_t> step) {
  for (size_t i = 0; i < std::min(kMostRecent, steps_.size()); ++i) {
    Step& one = steps_[steps_.size() - 1 - i];
    if (!step || one.step == *step) return &one;
  }
  return nullptr;
}

void StepPhases::Add(Phase phase, absl::Time begin, absl::Time end, std::optional<uint64_t> step) {
  MutexLock lock(mu_);
  Step* const of = FindLocked(step);
  if (of == nullptr) return;
  Span& span = of->spans[static_cast<size_t>(phase)];
  span.begin = std::min(span.begin, begin);
  span.end = std::max(span.end, end);
  span.busy += end - begin;
}

void StepPhases::Decided(absl::Time at) {
  MutexLock lock(mu_);
  Step* const step = FindLocked(std::nullopt);
  if (step == nullptr) return;
  // The vote is the last that is written of a step before it is decided.
  const absl::Time voted = step->spans[static_cast<size_t>(Phase::kJournal)].end;
  Span& span = step->spans[static_cast<size_t>(Phase::kDecide)];
  if (voted == absl::InfinitePast() || span.end >= at) return;
  span.begin = voted;
  span.end = at;
}

std::vector<v1::StepPhases> StepPhases::Read(uint64_t from_position) const {
  std::vector<v1::StepPhases> read;
  MutexLock lock(mu_);
  for (const Step& step : steps_) {
    if (step.position < from_position) continue;
    v1::StepPhases& told = read.emplace_back();
    told.set_position(step.position);
    told.set_step(step.step);
    std::vector<std::pair<absl::Time, size_t>> order;
    absl::Time end = step.begun;
    for (size_t i = 0; i < step.spans.size(); ++i) {
      if (step.spans[i].end == absl::InfinitePast()) continue;
      order.emplace_back(step.spans[i].begin, i);
      end = std::max(end, step.spans[i].end);
    }
    std::sort(order.begin(), order.end());
    told.set_total_microseconds(Microseconds(end - step.begun));
    for (const auto& [begin, i] : order) {
      v1::Phase& phase = *told.add_phases();
      phase.set_name(kNames[i]);
      phase.set_begin_microseconds(Microseconds(begin - step.begun));
      phase.set_end_microseconds(Microseconds(step.spans[i].end - step.begun));
      phase.set_busy_microseconds(Microseconds(step.spans[i].busy));
    }
  }
  return read;
}

PhaseTimer::PhaseTimer(StepPhases* phases, Phase phase, PhaseTimer** innermost,
                       std::optional<uint64_t> step)
    : phases_(phases),
      innermost_(innermost),
      outer_(innermost == nullptr ? nullptr : *innermost),
      step_(step),
      phase_(phase),
      since_(phases == nullptr ? absl::InfinitePast() : phases->now()) {
  if (innermost_ != nullptr) *innermost_ = this;
  if (outer_ != nullptr) outer_->Note();
}

PhaseTimer::~PhaseTimer() {
  Note();
  if (innermost_ != nullptr) *innermost_ = outer_;
  if (outer_ != nullptr) outer_->since_ = since_;
}

void PhaseTimer::Next(Phase phase) {
  Note();
  phase_ = phase;
}

void PhaseTimer::Note() {
  if (phases_ == nullptr) return;
  const absl::Time now = phases_->now();
  phases_->Add(phase_, since_, now, step_);
  since_ = now;
}

}  // namespace kaon::shard
