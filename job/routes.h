// Finds the route of each parameter by the routing rules of numerics.md section 2. `job` must have
// every option written out. Pure functions; any thread.
#ifndef KAON_JOB_ROUTES_H_
#define KAON_JOB_ROUTES_H_

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns one row per parameter, by id, without its shard. A copy (tied_to) gets the row of its
// original. ValidateJob has checked that the original is a parameter of the job and no copy.
// INVALID_ARGUMENT names the parameter if no rule assigns it a group, or if a group or norm group
// does not exist. The same error reports two rules that contradict each other, and a copy that
// requests another route than its original.
absl::StatusOr<v1::Placement> RouteParameters(const v1::JobDefinition& job);

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTES_H_
