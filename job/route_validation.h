// What makes the routes of a valid definition acceptable: the numbers each parameter is stepped
// with, and how it is cut. Every error is INVALID_ARGUMENT naming parameter, group, the factors and
// the range of their product. Pure functions; any thread.
#ifndef KAON_JOB_ROUTE_VALIDATION_H_
#define KAON_JOB_ROUTE_VALIDATION_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

using Groups = google::protobuf::RepeatedPtrField<v1::ParameterGroup>;

// Pieces of memory that layouts cut all parameters of a job into together; more is taken for a
// mistake, and would make every step slow.
inline constexpr uint64_t kMostJobRowRuns = uint64_t{1} << 20;

// The parameters that `routes` give to one of `groups`, which may be some of the job's: their
// factors are floats that shards step with, a step takes no more than the whole weight away as
// decay ([W1]), and layouts fit.
absl::Status ValidateRoutes(const Groups& groups, const v1::JobDefinition& job,
                            const v1::Placement& routes);

// The same products for a step whose learning rates are `learning_rate_multiplier` times those of
// `groups`. A schedule only makes them smaller.
absl::Status ValidateMultiplier(const Groups& groups, const v1::JobDefinition& job,
                                const v1::Placement& routes, double learning_rate_multiplier);

// The same products for a step that gives the i-th of `groups` the i-th of `rates`, of as many.
absl::Status ValidateRates(const Groups& groups, const v1::JobDefinition& job,
                           const v1::Placement& routes, const std::vector<double>& rates);

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTE_VALIDATION_H_
