#include "server/shard/step_phases.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kaon::shard {

namespace {

constexpr const char* kNames[kNumPhases] = {"receive",   "fold",   "journal", "prepare",
                                            "speculate", "decide", "apply",   "pull"};

// Readers of older versions than these are late, and their work belongs to no step.
constexpr size_t kMostRecent = 8;

uint64_t Microseconds(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(duration)));
}

}  // namespace

void StepPhases::Begin(uint64_t position, uint64_t step) {
  const absl::Time now = now_();
  const int64_t unix_micros = absl::ToUnixMicros(wall_now_());
  MutexLock lock(mu_);
  if (!steps_.empty() && steps_.back().position >= position) return;
  Step& begun = steps_.emplace_back();
  begun.position = position;
  begun.step = step;
  begun.begun = now;
  begun.begun_unix_micros = unix_micros;
  begun.seen = now;
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

StepPhases::Step* StepPhases::FindLocked(std::optional<uint64_t> step) {
  for (size_t i = 0; i < std::min(kMostRecent, steps_.size()); ++i) {
    Step& one = steps_[steps_.size() - 1 - i];
    if (!step || one.step == *step) return &one;
  }
  return nullptr;
}

void StepPhases::SeeLocked(Step& step, absl::Time now) {
  const absl::Duration passed = now - step.seen;
  step.seen = now;
  int running = 0;
  for (const Span& span : step.spans) running += span.open();
  if (running == 0) return;
  step.active += passed;
  for (Span& span : step.spans) {
    if (!span.open()) continue;
    span.active += passed;
    if (span.running == 0) span.busy += passed;
    if (running > 1) span.hidden += passed;
  }
}

StepPhases::Work StepPhases::Start(Phase phase, std::optional<uint64_t> step) {
  return Open(phase, step, false);
}

StepPhases::Work StepPhases::StartWait(Phase phase) { return Open(phase, std::nullopt, true); }

StepPhases::Work StepPhases::Open(Phase phase, std::optional<uint64_t> step, bool waits) {
  MutexLock lock(mu_);
  Work work = {.position = std::nullopt, .phase = phase, .begin = now_(), .waits = waits};
  Step* const of = FindLocked(step);
  if (of == nullptr) return work;
  SeeLocked(*of, work.begin);
  Span& span = of->spans[static_cast<size_t>(phase)];
  ++(waits ? span.waiting : span.running);
  work.position = of->position;
  return work;
}

void StepPhases::Stop(const Work& work) {
  if (!work.position) return;
  MutexLock lock(mu_);
  const auto of = std::lower_bound(
      steps_.begin(), steps_.end(), *work.position,
      [](const Step& step, uint64_t position) { return step.position < position; });
  // The step is so old that it is no longer kept.
  if (of == steps_.end() || of->position != *work.position) return;
  const absl::Time now = now_();
  SeeLocked(*of, now);
  Span& span = of->spans[static_cast<size_t>(work.phase)];
  --(work.waits ? span.waiting : span.running);
  span.begin = std::min(span.begin, work.begin);
  span.end = std::max(span.end, now);
  if (!work.waits) span.busy += now - work.begin;
}

void StepPhases::Decided() {
  MutexLock lock(mu_);
  const absl::Time at = now_();
  Step* const step = FindLocked(std::nullopt);
  if (step == nullptr) return;
  // The vote is the last entry of a step before its decision.
  const absl::Time voted = step->spans[static_cast<size_t>(Phase::kJournal)].end;
  Span& span = step->spans[static_cast<size_t>(Phase::kDecide)];
  if (voted == absl::InfinitePast() || span.end >= at) return;
  span.begin = voted;
  span.end = at;
}

std::vector<v1::StepPhases> StepPhases::Read(uint64_t from_position) const {
  // The messages are made without the lock, which threads that write gradients take, too.
  std::vector<Step> steps;
  {
    MutexLock lock(mu_);
    std::copy_if(steps_.begin(), steps_.end(), std::back_inserter(steps),
                 [&](const Step& step) { return step.position >= from_position; });
  }
  std::vector<v1::StepPhases> read;
  for (const Step& step : steps) {
    v1::StepPhases& told = read.emplace_back();
    told.set_position(step.position);
    told.set_step(step.step);
    told.set_accepted_unix_microseconds(std::max<int64_t>(0, step.begun_unix_micros));
    std::vector<std::pair<absl::Time, size_t>> order;
    absl::Time end = step.begun;
    for (size_t i = 0; i < step.spans.size(); ++i) {
      if (step.spans[i].end == absl::InfinitePast()) continue;
      order.emplace_back(step.spans[i].begin, i);
      end = std::max(end, step.spans[i].end);
    }
    std::sort(order.begin(), order.end());
    told.set_total_microseconds(Microseconds(end - step.begun));
    told.set_active_microseconds(Microseconds(step.active));
    for (const auto& [begin, i] : order) {
      v1::Phase& phase = *told.add_phases();
      phase.set_name(kNames[i]);
      phase.set_begin_microseconds(Microseconds(begin - step.begun));
      phase.set_end_microseconds(Microseconds(step.spans[i].end - step.begun));
      phase.set_busy_microseconds(Microseconds(step.spans[i].busy));
      phase.set_active_microseconds(Microseconds(step.spans[i].active));
      phase.set_hidden_microseconds(Microseconds(step.spans[i].hidden));
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
      phase_(phase) {
  if (innermost_ != nullptr) *innermost_ = this;
  if (outer_ != nullptr) outer_->Stop();
  Start();
}

PhaseTimer::~PhaseTimer() {
  Stop();
  if (innermost_ != nullptr) *innermost_ = outer_;
  if (outer_ != nullptr) outer_->Start();
}

void PhaseTimer::Next(Phase phase) {
  Stop();
  phase_ = phase;
  Start();
}

void PhaseTimer::Start() {
  if (phases_ != nullptr) work_ = phases_->Start(phase_, step_);
}

void PhaseTimer::Stop() {
  if (work_) phases_->Stop(*work_);
  work_.reset();
}

}  // namespace kaon::shard
