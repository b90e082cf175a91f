// Defines presets: one word that gives values for everything a job leaves unset. Where a preset
// follows another system, presets.cc says which values come from where. Pure functions; any thread.
#ifndef KAON_JOB_PRESETS_H_
#define KAON_JOB_PRESETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Returns default, keller, moonlight, megatron, dion, adamw.
std::vector<std::string> PresetNames();

// Returns the preset of the request: the one that it names, or `default` if it has no groups
// either. Otherwise returns "".
std::string PresetOf(const v1::JobDefinition& requested);

// Completes the request with the values of its preset. Adds groups and routing rules whose names
// the request lacks. Fills unset fields of its groups by their rule, and unset fields of the job.
// Never changes a field that is set, and reads no parameter. INVALID_ARGUMENT names an unknown
// preset and the known ones.
absl::StatusOr<v1::JobDefinition> WithPreset(const v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_PRESETS_H_
