// The job that is meant by the job that was asked for: every unset field gets its preset's value or
// the default parameters.proto documents. Pure functions; any thread.
#ifndef KAON_JOB_EFFECTIVE_H_
#define KAON_JOB_EFFECTIVE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Two requests that mean the same give equal messages: the preset's name is gone, its values are
// there. Effective of its own result changes nothing. INVALID_ARGUMENT naming an unknown preset,
// or both limits where norm group main and the job say different ones.
// Ranges are checked by ValidateJob, afterwards.
absl::StatusOr<v1::JobDefinition> Effective(const v1::JobDefinition& requested);

// The same for one group of a job without a preset.
v1::ParameterGroup EffectiveGroup(v1::ParameterGroup requested);

// [N7]: the restarts of the Gram form that are meant by none; few for a number of steps that is out
// of range.
std::vector<uint32_t> DefaultGramRestarts(uint32_t ns_steps);

}  // namespace kaon::job

#endif  // KAON_JOB_EFFECTIVE_H_
