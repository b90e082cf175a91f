// Reads facts from a job's definition. Pure functions; any thread.
#ifndef KAON_JOB_DEFINITION_H_
#define KAON_JOB_DEFINITION_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// Norm group of every parameter that names no other ([C3]).
inline constexpr absl::string_view kMainNormGroup = "main";

// Returns the product of the shape; 1 for a scalar. Does not check for overflow: call it for a
// validated job.
uint64_t NumElements(const v1::ParameterSpec& parameter);

// Returns the index of the group with that name; -1 if there is none.
int GroupIndex(const v1::JobDefinition& job, absl::string_view group);

// Returns the index of every group by name. Use it to look up the groups of many parameters.
absl::flat_hash_map<std::string, int> GroupIndices(const v1::JobDefinition& job);

// Replaces each Newton-Schulz form of `requested` that this build does not know. The form and its
// restarts become those of the same group of `registered`, the job that the request created. Older
// builds stored requests with form 3, which left the choice to the shards.
void ReplaceUnknownForms(const v1::JobDefinition& registered, v1::JobDefinition& requested);

}  // namespace kaon::job

#endif  // KAON_JOB_DEFINITION_H_
