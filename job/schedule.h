// Computes the learning rate of each group for a step: base rate, times schedule factor, times the
// step's multiplier (numerics.md section 2, schedules). The coordinator and kaon-train --local use
// it. Pure functions; any thread.
#ifndef KAON_JOB_SCHEDULE_H_
#define KAON_JOB_SCHEDULE_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the factor of a step that follows `applied_updates` applied steps, as parameters.proto
// defines it: 0 .. 1. A skipped step does not advance it.
double ScheduleFactor(const v1::Schedule& schedule, uint64_t applied_updates);

// Adds the rate of every group of `job`, in its order, to a step that follows a record with
// `applied_updates`.
void AddRates(const v1::JobDefinition& job, uint64_t applied_updates, double multiplier,
              v1::StepBody& step);

}  // namespace kaon::job

#endif  // KAON_JOB_SCHEDULE_H_
