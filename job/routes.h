// From a job, every option written out, to the route of each parameter: the routing rules of
// numerics.md section 2. Pure functions; any thread.
#ifndef KAON_JOB_ROUTES_H_
#define KAON_JOB_ROUTES_H_

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns one row per parameter, by id, without its shard. A copy has the row of its original,
// which ValidateJob has checked to be a parameter of the job and no copy. INVALID_ARGUMENT naming
// the parameter when no rule gives it a group, a group or norm group does not exist, two rules
// contradict each other, or a copy asks for another route than its original has.
absl::StatusOr<v1::Placement> RouteParameters(const v1::JobDefinition& job);

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTES_H_
