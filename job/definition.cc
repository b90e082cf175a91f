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

void ReplaceUnknownForms(const v1::JobDefinition& registered, v1::JobDefinition& requested) {
  for (v1::ParameterGroup& group : *requested.mutable_groups()) {
    if (v1::NewtonSchulzForm_IsValid(group.muon().newton_schulz().form())) continue;
    const int index = GroupIndex(registered, group.name());
    if (index < 0) continue;
    const v1::NewtonSchulzOptions& chosen = registered.groups(index).muon().newton_schulz();
    v1::NewtonSchulzOptions& options = *group.mutable_muon()->mutable_newton_schulz();
    options.set_form(chosen.form());
    *options.mutable_gram_restarts() = chosen.gram_restarts();
  }
}

}  // namespace kaon::job
