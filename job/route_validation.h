// Validates the routes of a valid definition: the numbers that each parameter is stepped with, and
// how it is cut into matrices. Every error is INVALID_ARGUMENT and names parameter, group, the
// factors and the range of their product. Pure functions; any thread.
#ifndef KAON_JOB_ROUTE_VALIDATION_H_
#define KAON_JOB_ROUTE_VALIDATION_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "job/schedule.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

using Groups = google::protobuf::RepeatedPtrField<v1::ParameterGroup>;

// Upper bound on the pieces of memory that layouts cut all parameters of a job into. A job above it
// is most likely a mistake, and its steps would be slow.
inline constexpr uint64_t kMostJobRowRuns = uint64_t{1} << 20;

// Validates the parameters that `routes` assigns to one of `groups`, which may be only some of the
// job's groups. Every product of factors must fit in a float. The decay of one step may take at
// most the whole weight ([W1]). Layouts must fit the shapes.
absl::Status ValidateRoutes(const Groups& groups, const v1::JobDefinition& job,
                            const v1::Placement& routes);

// Checks the same products for a step whose learning rates are `multipliers` times those of
// `groups`. Each factor must be for a group of the job. A schedule only makes rates smaller.
absl::Status ValidateMultipliers(const Groups& groups, const v1::JobDefinition& job,
                                 const v1::Placement& routes, const RateMultipliers& multipliers);

// Checks the same products for a step that gives the i-th of `groups` the i-th of `rates`. The two
// have the same size.
absl::Status ValidateRates(const Groups& groups, const v1::JobDefinition& job,
                           const v1::Placement& routes, const std::vector<double>& rates);

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTE_VALIDATION_H_
