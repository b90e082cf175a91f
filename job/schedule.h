// Computes the learning rate of each group for a step: base rate, times schedule factor, times the
// step's multipliers (numerics.md section 2, schedules). The coordinator and kaon-train --local use
// it. Pure functions; any thread.
#ifndef KAON_JOB_SCHEDULE_H_
#define KAON_JOB_SCHEDULE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the factor of a step that follows `applied_updates` applied steps, as parameters.proto
// defines it: 0 .. 1. A skipped step does not advance it.
double ScheduleFactor(const v1::Schedule& schedule, uint64_t applied_updates);

// Factors of one step on the learning rates.
struct RateMultipliers {
  // Factor on every group's rate.
  double step = 1;
  // Further factor by group; a group without one has 1.
  std::map<std::string, double> groups;

  // Returns the further factor of a group.
  double OfGroup(const std::string& group) const;
  // Returns "0.5", or "0.5 (muon 0.1, adamw 2)".
  std::string Text() const;
  // Two values without factors of 1 in `groups` are equal if they give equal rates.
  friend auto operator<=>(const RateMultipliers&, const RateMultipliers&) = default;
};

// Adds the rate of every group of `job`, in its order, to a step that follows a record with
// `applied_updates`.
void AddRates(const v1::JobDefinition& job, uint64_t applied_updates,
              const RateMultipliers& multipliers, v1::StepBody& step);

}  // namespace kaon::job

#endif  // KAON_JOB_SCHEDULE_H_
