// Derives everything that follows from a job's definition alone: its defaults, its checks, its
// routes. The coordinator registers the result; kaon-train --local runs it. Pure functions; any
// thread.
#ifndef KAON_JOB_RESOLVE_H_
#define KAON_JOB_RESOLVE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the registration without the shards of its placement. INVALID_ARGUMENT names field, value
// and range of the first error.
absl::StatusOr<v1::RegisterBody> Resolve(const v1::JobDefinition& requested);

// Checks that some shards could run the definition; fails with INVALID_ARGUMENT like Resolve.
absl::Status CheckJob(const v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_RESOLVE_H_
