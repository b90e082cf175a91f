// Validates a group's hyper-parameters. Every error is INVALID_ARGUMENT and names group, field,
// value and range. Pure functions; any thread.
#ifndef KAON_JOB_GROUP_VALIDATION_H_
#define KAON_JOB_GROUP_VALIDATION_H_

#include "absl/status/status.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the first error of a group that has every option written out (effective_job.h). Does not
// look at the group's parameters, nor whether its norm group exists: ValidateJob checks these.
absl::Status ValidateGroup(const v1::ParameterGroup& group);

}  // namespace kaon::job

#endif  // KAON_JOB_GROUP_VALIDATION_H_
