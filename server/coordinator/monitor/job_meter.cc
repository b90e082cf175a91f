#include "server/coordinator/monitor/job_meter.h"

namespace kaon::coordinator {

void JobMeter::Note(const v1::StepRecord& record, int64_t unix_millis, absl::Time now) {
  const v1::StepPlan& plan = record.plan();
  const bool trains = plan.has_step() && plan.step().kind() == v1::STEP_KIND_TRAIN;
  // The old record is freed without the lock.
  auto newest = trains ? std::make_shared<const v1::StepRecord>(record) : nullptr;
  MutexLock lock(mu_);
  numbers_.decided_unix_millis = unix_millis;
  if (!trains) return;
  const bool follows = numbers_.newest != nullptr &&
                       numbers_.newest->plan().timeline() == plan.timeline() &&
                       numbers_.newest->plan().step().step() + 1 == plan.step().step();
  if (follows) numbers_.step_seconds.Add(absl::ToDoubleSeconds(now - decided_));
  decided_ = now;
  numbers_.newest.swap(newest);
  ++(record.decision().outcome() == v1::OUTCOME_APPLY ? numbers_.applied : numbers_.skipped);
}

JobNumbers JobMeter::Read() const {
  MutexLock lock(mu_);
  return numbers_;
}

}  // namespace kaon::coordinator
