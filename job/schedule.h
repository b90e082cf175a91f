// Learning rates of a step: each group's own base rate times its schedule's factor times the step's
// multiplier (numerics.md section 2, schedules). Pure functions; any thread. Used by the
// coordinator, and by kaon-train --local.
#ifndef KAON_JOB_SCHEDULE_H_
#define KAON_JOB_SCHEDULE_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Factor of the step before which `applied_updates` were applied, as parameters.proto defines it;
// 0 .. 1. A skipped step does not advance it.
double ScheduleFactor(const v1::Schedule& schedule, uint64_t applied_updates);

// Rates of every group of `job`, in its order, for a step that follows a record with
// `applied_updates`.
void AddRates(const v1::JobDefinition& job, uint64_t applied_updates, double multiplier,
              v1::StepBody& step);

}  // namespace kaon::job

#endif  // KAON_JOB_SCHEDULE_H_
