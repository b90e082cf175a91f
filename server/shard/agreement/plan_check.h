// Checks whether a coordinator's plan or decision fits the job as this shard knows it. No message
// that passes can violate an invariant of later code. Pure functions; any thread.
#ifndef KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_
#define KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::shard {

// Returns "(ballot ..., round ...)", for messages.
std::string DescribeStamp(const v1::StepPlan& plan);

struct JobProgress {
  // Null before the registration is applied.
  const v1::RegisterBody* registration = nullptr;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
};

// Returns FAILED_PRECONDITION if the step is not the next one. Returns INVALID_ARGUMENT naming
// field, value and range if the body is malformed.
absl::Status CheckPlanBody(const JobProgress& progress, const v1::StepPlan& plan);

// Returns whether a shard must have memory for this plan before it votes. `registration` is the
// applied one; null before.
bool NeedsMemory(const v1::StepPlan& plan, const v1::RegisterBody* registration);

// Returns INVALID_ARGUMENT for an unknown outcome, a loss scale out of range, or a clip factor
// outside (0, 1]. The groups and norm groups of an applied step must also be the job's.
// `registration` is the applied one; null before.
absl::Status CheckDecision(const v1::RegisterBody* registration, const v1::StepRecord& record);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_
