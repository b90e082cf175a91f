// What a job may be: conversions between the public JobDefinition and kaon.v1, the defaults of
// unset options, the routes the routing rules choose, and every check of a definition. Used by the
// client, and by the coordinator and the shards, so that all of them fill in the same defaults.
// Pure functions; any thread.
#ifndef KAON_CLIENT_JOB_SCHEMA_H_
#define KAON_CLIENT_JOB_SCHEMA_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/kaon/job_definition.h"
#include "kaon/v1/coordinator.pb.h"
#include "kaon/v1/parameters.pb.h"
#include "kernels/optimizer_rule.h"
#include "kernels/routing.h"

namespace kaon::client {

// Of a worker's share in a step. As a float no token weight may become 0.
inline constexpr double kMinTokenWeight = std::numeric_limits<float>::min();
inline constexpr double kMaxTokenWeight = 1099511627776.0;  // 2^40
inline constexpr uint32_t kMaxMicroBatches = 1024;

// Every option of every group is written out, so that equal definitions are equal messages.
v1::JobDefinition ToProto(const kaon::JobDefinition& definition);

// Unset options take their defaults. Routes are by parameter id; a placement that is missing gives
// empty routes.
kaon::JobDescription FromProto(const v1::JobDescription& description);

// Hyper-parameters of `group` with the defaults filled in, for stepping `parameter`.
kernels::RuleConfig RuleConfigOf(const v1::ParameterGroup& group,
                                 const v1::ParameterSpec& parameter);

// Whether the norm clip leaves this group alone: its policy, or else its rule's scale-invariance
// ([C7]).
bool IsClipExempt(const v1::ParameterGroup& group);

// The route of every parameter, by id. INVALID_ARGUMENT naming the parameter when no rule gives it
// one, or the group a rule chose does not exist.
absl::StatusOr<std::vector<kernels::Route>> RouteParameters(const v1::JobDefinition& job);

// INVALID_ARGUMENT naming field, value and range of the first error: names, shapes, dtypes, groups,
// hyper-parameters, routes, world size.
absl::Status ValidateJob(const v1::JobDefinition& job);

// INVALID_ARGUMENT naming field, value and range: what a worker begins a step with.
absl::Status ValidateShare(double token_weight, uint32_t micro_batches,
                           double learning_rate_multiplier);

// INVALID_ARGUMENT naming group, rate and multiplier unless every group's product of both is a
// finite float: shards step with floats.
absl::Status ValidateMultiplier(const v1::JobDefinition& job, double learning_rate_multiplier);

// INVALID_ARGUMENT naming `field`, value and range.
absl::Status ValidateTokenWeight(absl::string_view field, double token_weight);
absl::Status ValidateLearningRate(absl::string_view field, double learning_rate);

// Product of the shape; 1 for a scalar. Meant for a validated job: no overflow check.
uint64_t NumElements(const v1::ParameterSpec& parameter);

// Index of the group of that name, -1 if none.
int GroupIndex(const v1::JobDefinition& job, absl::string_view group);

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_SCHEMA_H_
