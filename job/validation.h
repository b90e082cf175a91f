// What makes a job, or a worker's share of a step, acceptable. Every error is INVALID_ARGUMENT
// naming field, value and range. Pure functions; any thread.
#ifndef KAON_JOB_VALIDATION_H_
#define KAON_JOB_VALIDATION_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Of a worker's share in a step. As a float no token weight may become 0.
inline constexpr double kMinTokenWeight = std::numeric_limits<float>::min();
inline constexpr double kMaxTokenWeight = 1099511627776.0;  // 2^40
inline constexpr uint32_t kMaxMicroBatches = 1024;

// The routes of a job with every option written out (effective.h), or the first error of names,
// shapes, dtypes, groups, hyper-parameters, routes, world size.
absl::StatusOr<v1::Placement> ValidateJob(const v1::JobDefinition& job);

// INVALID_ARGUMENT naming field, value and range: what a worker begins a step with.
absl::Status ValidateShare(double token_weight, uint32_t micro_batches,
                           double learning_rate_multiplier);

// Of one step, over all parameters and workers: shards keep some dozens of bytes for each, beside
// the gradients.
inline constexpr uint64_t kMaxContributions = uint64_t{1} << 22;

// INVALID_ARGUMENT naming value and range, for micro-batches that would exceed kMaxContributions if
// every worker had as many. One is always allowed.
absl::Status ValidateContributions(uint32_t micro_batches, uint64_t num_parameters,
                                   uint32_t world_size);

// INVALID_ARGUMENT naming `field`, value and range.
absl::Status ValidateTokenWeight(absl::string_view field, double token_weight);
absl::Status ValidateLearningRate(absl::string_view field, double learning_rate);

}  // namespace kaon::job

#endif  // KAON_JOB_VALIDATION_H_
