// The job that is meant by the job that was asked for: every unset field gets its preset's value or
// the default parameters.proto documents. Pure functions; any thread.
#ifndef KAON_JOB_EFFECTIVE_H_
#define KAON_JOB_EFFECTIVE_H_

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Two requests that mean the same give equal messages: the preset's name is gone, its values are
// there. Effective of its own result changes nothing. INVALID_ARGUMENT naming an unknown preset.
// Ranges are checked by ValidateJob, afterwards.
absl::StatusOr<v1::JobDefinition> Effective(const v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_EFFECTIVE_H_
