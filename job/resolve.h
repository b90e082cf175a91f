// Everything that follows from a job's definition alone: its defaults, its checks, its routes. What
// the coordinator registers, and what kaon-train --local runs. Pure functions; any thread.
#ifndef KAON_JOB_RESOLVE_H_
#define KAON_JOB_RESOLVE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// The registration without the shards of its placement. INVALID_ARGUMENT names field, value and
// range of the first error.
absl::StatusOr<v1::RegisterBody> Resolve(const v1::JobDefinition& requested);

// Whether the definition is one that some shards could run: INVALID_ARGUMENT as above.
absl::Status CheckJob(const v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_RESOLVE_H_
