#include "server/coordinator/machine/entry_name.h"

#include "absl/strings/str_cat.h"
#include "server/config/loss_remedy.h"

namespace kaon::coordinator {

std::string NameOfEntry(const v1::StepPlan& plan) {
  if (plan.has_group_change()) {
    const auto& settings = plan.group_change().settings();
    const std::string group = settings.empty() ? "" : settings[0].group();
    return group.empty() ? "change of the job" : absl::StrCat("change of group ", group);
  }
  if (plan.has_restore()) {
    return absl::StrCat("restore of checkpoint ", plan.restore().checkpoint());
  }
  if (plan.has_rollback()) {
    return absl::StrCat("rollback to step ", plan.rollback().target().step());
  }
  if (plan.has_job_deletion()) return absl::StrCat("deletion of job ", plan.job());
  if (!plan.has_step()) return absl::StrCat("registration of job ", plan.job());
  if (plan.step().kind() == v1::STEP_KIND_LOAD_WEIGHTS) return "initial weights";
  return absl::StrCat("step ", plan.step().step());
}

absl::Status TimelineIsOver(uint64_t timeline, const v1::StepPlan& plan) {
  if (plan.has_job_deletion()) return config::JobWasDeleted(plan.job());
  if (plan.has_rollback()) {
    return absl::AbortedError(absl::StrCat("timeline ", timeline,
                                           " is over: ", plan.rollback().reason(), " in timeline ",
                                           plan.timeline()));
  }
  return absl::AbortedError(absl::StrCat(
      "timeline ", timeline, " is over: the job goes on from ", "step ", plan.restore().step(),
      " of checkpoint ", plan.restore().checkpoint(), " in timeline ", plan.timeline()));
}

}  // namespace kaon::coordinator
