// Validates a job, or a worker's share of a step. Every error is INVALID_ARGUMENT and names field,
// value and range. Pure functions; any thread.
#ifndef KAON_JOB_VALIDATION_H_
#define KAON_JOB_VALIDATION_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/schedule.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Token weight of a worker's share in a step. The lower bound keeps the weight above 0 as a float.
inline constexpr double kMinTokenWeight = std::numeric_limits<float>::min();
inline constexpr double kMaxTokenWeight = 1099511627776.0;  // 2^40
inline constexpr uint32_t kMaxMicroBatches = 1024;

// Returns the routes of a job with every option written out (effective_job.h). Otherwise returns
// the first error of names, shapes, dtypes, groups, hyper-parameters, routes or world size.
absl::StatusOr<v1::Placement> ValidateJob(const v1::JobDefinition& job);

// Validates the arguments that a worker begins a step with, but for names of groups
// (ValidateMultipliers).
absl::Status ValidateShare(double token_weight, uint32_t micro_batches,
                           const RateMultipliers& multipliers);

// Upper bound on the contributions of one step, over all parameters and workers. Shards keep some
// dozens of bytes for each, in addition to the gradients.
inline constexpr uint64_t kMaxContributions = uint64_t{1} << 22;

// Rejects micro-batches that would exceed kMaxContributions if every worker had as many. One
// micro-batch is always allowed.
absl::Status ValidateContributions(uint32_t micro_batches, uint64_t num_parameters,
                                   uint32_t world_size);

absl::Status ValidateTokenWeight(absl::string_view field, double token_weight);
absl::Status ValidateLearningRate(absl::string_view field, double learning_rate);

}  // namespace kaon::job

#endif  // KAON_JOB_VALIDATION_H_
