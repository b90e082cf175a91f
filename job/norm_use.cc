#include "job/norm_use.h"

#include <glog/logging.h>

#include <string>
#include <unordered_map>

#include "job/definition.h"
#include "job/rule_config.h"

namespace kaon::job {
namespace {

std::vector<NormGroupUse> NormGroupsOf(const v1::JobDefinition& job) {
  std::vector<NormGroupUse> groups(1);
  groups[0].name = std::string(kMainNormGroup);
  groups[0].max_grad_norm = job.max_grad_norm();
  for (const v1::NormGroup& declared : job.norm_groups()) {
    const double limit =
        declared.has_max_grad_norm() ? declared.max_grad_norm() : job.max_grad_norm();
    if (declared.name() == groups[0].name) {
      // `main` needs no declaration, but a declaration may set a limit of its own.
      groups[0].max_grad_norm = limit;
      continue;
    }
    NormGroupUse& group = groups.emplace_back();
    group.name = declared.name();
    group.max_grad_norm = limit;
  }
  return groups;
}

// Marks the norms that decisions read. Only parameters that can be clipped matter: a norm group
// without any of them decides nothing.
void MarkRead(const v1::JobDefinition& job, NormUse& use) {
  for (const ParameterNormUse& parameter : use.parameters) {
    if (parameter.group < 0 || parameter.exempt) continue;
    NormGroupUse& group = use.norm_groups[parameter.norm_group];
    if (group.max_grad_norm > 0) {
      (job.clip_scope() == v1::CLIP_SCOPE_ALL ? group.reads_norm : group.reads_live_norm) = true;
    }
    // The skip threshold applies to main alone ([T4]).
    if (parameter.norm_group == 0 && job.has_grad_norm_skip_threshold()) {
      group.reads_live_norm = true;
    }
  }
  for (const NormGroupUse& group : use.norm_groups) {
    use.reads_any = use.reads_any || group.reads_norm || group.reads_live_norm;
  }
  for (ParameterNormUse& parameter : use.parameters) {
    if (parameter.group < 0) continue;
    const NormGroupUse& group = use.norm_groups[parameter.norm_group];
    const bool read = group.reads_norm || (group.reads_live_norm && !parameter.exempt);
    parameter.takes_sum = use.reports_all || (read && parameter.counted);
  }
}

}  // namespace

std::vector<std::string> NormGroupNames(const v1::JobDefinition& job) {
  std::vector<std::string> names;
  for (const NormGroupUse& group : NormGroupsOf(job)) names.push_back(group.name);
  return names;
}

NormUse NormUseOf(const v1::RegisterBody& job) {
  const v1::JobDefinition& definition = job.definition();
  NormUse use;
  use.reports_all = definition.report_norms() != v1::REPORT_NORMS_OFF;
  use.norm_groups = NormGroupsOf(definition);
  std::unordered_map<std::string, int> norm_group_of;
  for (const NormGroupUse& group : use.norm_groups) {
    norm_group_of.emplace(group.name, static_cast<int>(norm_group_of.size()));
  }
  norm_group_of.emplace("", 0);
  std::unordered_map<std::string, int> group_of;
  for (const v1::ParameterGroup& group : definition.groups()) {
    group_of.emplace(group.name(), static_cast<int>(group_of.size()));
    use.exempt.push_back(IsClipExempt(group));
  }
  for (const v1::ParameterPlacement& placement : job.placement().parameters()) {
    ParameterNormUse& parameter = use.parameters.emplace_back();
    const auto group = group_of.find(placement.group());
    if (group == group_of.end()) continue;
    // Registration rejects unknown norm groups ([C3]).
    const auto norm_group = norm_group_of.find(placement.norm_group());
    CHECK(norm_group != norm_group_of.end()) << "norm group " << placement.norm_group();
    parameter.group = group->second;
    parameter.norm_group = norm_group->second;
    parameter.exempt = use.exempt[parameter.group];
    parameter.counted = placement.counted();
  }
  MarkRead(definition, use);
  return use;
}

}  // namespace kaon::job
