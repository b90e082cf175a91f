#include "job/schedule.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kaon::job {

double ScheduleFactor(const v1::Schedule& schedule, uint64_t applied_updates) {
  const uint64_t n = applied_updates;
  const uint64_t warmup = schedule.warmup_steps();
  if (n < warmup) return static_cast<double>(n + 1) / static_cast<double>(warmup + 1);
  const uint64_t total = schedule.total_steps();
  const double final_factor = schedule.final_factor();
  // First step of the descent.
  uint64_t begin = warmup;
  switch (schedule.kind()) {
    case v1::SCHEDULE_KIND_COSINE:
    case v1::SCHEDULE_KIND_LINEAR:
      break;
    case v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY:
      begin = total - schedule.decay_steps();
      break;
    default:
      return 1;
  }
  if (n >= total) return final_factor;
  if (n <= begin) return 1;
  const double progress = static_cast<double>(n - begin) / static_cast<double>(total - begin);
  const double down =
      schedule.kind() == v1::SCHEDULE_KIND_COSINE ? (1 - std::cos(M_PI * progress)) / 2 : progress;
  return 1 - (1 - final_factor) * down;
}

double RateMultipliers::OfGroup(const std::string& group) const {
  const auto found = groups.find(group);
  return found == groups.end() ? 1 : found->second;
}

std::string RateMultipliers::Text() const {
  if (groups.empty()) return absl::StrCat(step);
  return absl::StrCat(step, " (", absl::StrJoin(groups, ", ", absl::PairFormatter(" ")), ")");
}

void AddRates(const v1::JobDefinition& job, uint64_t applied_updates,
              const RateMultipliers& multipliers, v1::StepBody& step) {
  for (const v1::ParameterGroup& group : job.groups()) {
    v1::GroupRate& rate = *step.add_rates();
    rate.set_group(group.name());
    rate.set_learning_rate(group.lr() * ScheduleFactor(group.schedule(), applied_updates) *
                           multipliers.step * multipliers.OfGroup(group.name()));
  }
}

}  // namespace kaon::job
