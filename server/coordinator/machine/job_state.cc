#include "server/coordinator/machine/job_state.h"

#include <utility>

#include "job/schedule.h"
#include "job/settings.h"

namespace kaon::coordinator {

void JobState::Read(const v1::ShardState& newest) {
  position = newest.applied_position();
  record.reset();
  if (newest.has_applied_record()) record = DecidedRecord(newest.applied_record());
  registration.reset();
  if (newest.has_registration()) registration = newest.registration();
  timeline = registration ? newest.timeline() : newest.timeline() + 1;
  config_revision = newest.config_revision();
  applied_step = newest.applied_step();
  weights_loaded = newest.weights_loaded();
}

void JobState::Append(v1::StepRecord decided) {
  record = DecidedRecord(std::move(decided));
  const v1::StepPlan& plan = record->plan();
  position = plan.position();
  if (plan.has_registration()) {
    config_revision = position;
    registration = plan.registration();
    timeline = plan.timeline();
  } else if (plan.has_restore()) {
    config_revision = position;
    registration = plan.restore().registration();
    timeline = plan.timeline();
    applied_step = plan.restore().step();
    weights_loaded = true;
  } else if (plan.has_rollback()) {
    config_revision = position;
    registration = job::RegistrationAfter(plan.rollback());
    timeline = plan.timeline();
    applied_step = plan.rollback().target().step();
    weights_loaded = true;
  } else if (plan.has_job_deletion()) {
    config_revision = position;
    registration.reset();
    timeline = plan.timeline() + 1;
    applied_step = 0;
    weights_loaded = false;
  } else if (plan.has_group_change()) {
    config_revision = position;
    job::ApplyGroupChange(plan.group_change(), *registration);
  } else if (plan.step().kind() == v1::STEP_KIND_TRAIN) {
    applied_step = plan.step().step();
  } else {
    weights_loaded = record->decision().outcome() == v1::OUTCOME_APPLY;
  }
}

v1::StepPlan JobState::PlanStep(const std::vector<v1::Member>& members,
                                const job::RateMultipliers& multipliers) const {
  v1::StepPlan plan;
  plan.set_job(registration->definition().name());
  v1::StepBody& step = *plan.mutable_step();
  step.set_step(NextStep());
  for (const v1::Member& member : members) *step.add_members() = member;
  if (weights_loaded) {
    step.set_kind(v1::STEP_KIND_TRAIN);
    // Rule 8: "The loss scale of t comes from StepRecord(t-1) only".
    step.set_loss_scale(record->decision().next_loss_scale());
    job::AddRates(registration->definition(), record->decision().applied_updates(), multipliers,
                  step);
  } else {
    step.set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
    step.set_loss_scale(1);
  }
  return plan;
}

v1::JobDescription JobState::Describe() const {
  v1::JobDescription description;
  *description.mutable_definition() = registration->definition();
  *description.mutable_placement() = registration->placement();
  description.set_timeline(timeline);
  description.set_applied_step(applied_step);
  description.set_weights_loaded(weights_loaded);
  *description.mutable_requested() = registration->requested();
  *description.mutable_changed() = registration->changed();
  description.set_config_revision(config_revision);
  return description;
}

std::string JobState::DeletedJob() const {
  return NewestPlan().has_job_deletion() ? NewestPlan().job() : "";
}

}  // namespace kaon::coordinator
