// Completes a job request: every unset field gets its preset's value or the default that
// parameters.proto documents. Pure functions; any thread.
#ifndef KAON_JOB_EFFECTIVE_JOB_H_
#define KAON_JOB_EFFECTIVE_JOB_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns the complete job; the values of its preset are written out and the preset's name is
// cleared. Two requests with the same meaning give equal messages, and a complete job stays as it
// is. Fails with INVALID_ARGUMENT if the preset is unknown, or if norm group main and the job set
// different limits. Does not check ranges: call ValidateJob afterwards.
absl::StatusOr<v1::JobDefinition> Effective(const v1::JobDefinition& requested);

// Completes one group of a job without a preset.
v1::ParameterGroup EffectiveGroup(v1::ParameterGroup requested);

// Returns the restarts of the Gram form for a group that sets none ([N7]). If `ns_steps` is out of
// range, the list stays as short as for the largest valid number.
std::vector<uint32_t> DefaultGramRestarts(uint32_t ns_steps);

}  // namespace kaon::job

#endif  // KAON_JOB_EFFECTIVE_JOB_H_
