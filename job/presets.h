// Named sets of values for what a job leaves unset: a whole job's worth by one word. Where a preset
// follows another system, presets.cc says which of its values come from where. Pure functions; any
// thread.
#ifndef KAON_JOB_PRESETS_H_
#define KAON_JOB_PRESETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// default, keller, moonlight, megatron, dion, adamw.
std::vector<std::string> PresetNames();

// The preset the request means: the one it names, `default` when it has no groups either, else
// "".
std::string PresetOf(const v1::JobDefinition& requested);

// The request with its preset's values: groups and routing rules whose names it does not have,
// unset fields of its groups by their rule, unset fields of its own. What is set stays. Looks at no
// parameter. INVALID_ARGUMENT naming an unknown preset and those there are.
absl::StatusOr<v1::JobDefinition> WithPreset(const v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_PRESETS_H_
