// What makes a group's hyper-parameters acceptable. Every error is INVALID_ARGUMENT naming group,
// field, value and range. Pure functions; any thread.
#ifndef KAON_JOB_GROUP_VALIDATION_H_
#define KAON_JOB_GROUP_VALIDATION_H_

#include "absl/status/status.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// The first error of a group with every option written out (effective.h), whatever it steps:
// whether its norm group exists is the job's affair.
absl::Status ValidateGroup(const v1::ParameterGroup& group);

}  // namespace kaon::job

#endif  // KAON_JOB_GROUP_VALIDATION_H_
