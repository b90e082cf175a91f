#include "job/definition.h"

namespace kaon::job {

uint64_t NumElements(const v1::ParameterSpec& parameter) {
  uint64_t elements = 1;
  for (uint64_t dimension : parameter.shape()) elements *= dimension;
  return elements;
}

int GroupIndex(const v1::JobDefinition& job, absl::string_view group) {
  for (int i = 0; i < job.groups_size(); ++i) {
    if (job.groups(i).name() == group) return i;
  }
  return -1;
}

absl::flat_hash_map<std::string, int> GroupIndices(const v1::JobDefinition& job) {
  absl::flat_hash_map<std::string, int> indices;
  for (int i = 0; i < job.groups_size(); ++i) indices[job.groups(i).name()] = i;
  return indices;
}

}  // namespace kaon::job
