#include "server/journal/interval_schedule.h"

#include "server/mutation/mutation.h"

namespace kaon::journal {

bool IntervalSchedule::IsPoint(const v1::StepRecord& record) const {
  const v1::StepPlan& plan = record.plan();
  if (plan.has_restore() || plan.has_rollback() || plan.has_job_deletion()) return true;
  if (!plan.has_step()) return false;
  if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) {
    return record.decision().outcome() == v1::OUTCOME_APPLY;
  }
  return plan.step().step() % spacing_ == 0;
}

bool IntervalSchedule::MayVote(uint64_t step, uint64_t durable) const {
  if (Mutated(Mutation::kVoteBeforeSnapshot)) return true;
  return durable + spacing_ >= step - step % spacing_;
}

}  // namespace kaon::journal
