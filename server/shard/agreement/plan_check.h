// Whether a plan or a decision that a coordinator sent fits the job as this shard knows it, so that
// nothing behind this check can be tripped by a message. Pure functions; any thread.
#ifndef KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_
#define KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::shard {

// "(ballot ..., round ...)", for messages.
std::string DescribeStamp(const v1::StepPlan& plan);

struct JobProgress {
  // Null before the registration was applied.
  const v1::RegisterBody* registration = nullptr;
  uint64_t applied_step = 0;
  bool weights_loaded = false;
};

// FAILED_PRECONDITION for another step than the next; INVALID_ARGUMENT naming field, value and
// range for a malformed body.
absl::Status CheckPlanBody(const JobProgress& progress, const v1::StepPlan& plan);

// INVALID_ARGUMENT for an unknown outcome, a loss scale out of range, a clip factor outside (0, 1],
// or, of a step that is applied, other groups or norm groups than the job's. `registration` is the
// applied one, null before.
absl::Status CheckDecision(const v1::RegisterBody* registration, const v1::StepRecord& record);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_AGREEMENT_PLAN_CHECK_H_
