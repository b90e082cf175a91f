#include "job/routes.h"

#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/names.h"
#include "job/routing_rules.h"
#include "kernels/routing.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

bool DeclaresLayout(const v1::ParameterSpec& parameter) {
  return parameter.layout().kind() != v1::MATRIX_LAYOUT_KIND_UNSPECIFIED;
}

// A frozen parameter counts as no copy, even if it is tied.
bool IsCopy(const v1::ParameterSpec& parameter) {
  return !parameter.tied_to().empty() && !parameter.frozen();
}

// A field of a route that a copy must share with its original.
struct CopiedField {
  absl::string_view name;
  const v1::RoutingRule* RuleOutcome::*setter;
  std::string (*text)(const v1::ParameterPlacement&);
};

const CopiedField kCopiedFields[] = {
    {"group", &RuleOutcome::group,
     [](const v1::ParameterPlacement& row) { return absl::StrCat("\"", row.group(), "\""); }},
    {"norm_group", &RuleOutcome::norm_group,
     [](const v1::ParameterPlacement& row) { return absl::StrCat("\"", row.norm_group(), "\""); }},
    {"layout", &RuleOutcome::layout,
     [](const v1::ParameterPlacement& row) { return LayoutText(row.layout()); }},
    {"lr_multiplier", &RuleOutcome::lr_multiplier,
     [](const v1::ParameterPlacement& row) { return NumberText(row.lr_multiplier()); }},
    {"weight_decay_multiplier", &RuleOutcome::weight_decay_multiplier,
     [](const v1::ParameterPlacement& row) { return NumberText(row.weight_decay_multiplier()); }},
};

kernels::RoutingInput InputOf(const v1::ParameterSpec& parameter, const RuleOutcome& rules) {
  kernels::RoutingInput input;
  input.name = parameter.name();
  input.shape.assign(parameter.shape().begin(), parameter.shape().end());
  input.group = parameter.group();
  input.is_embedding_or_output = parameter.is_embedding_or_output();
  input.frozen = parameter.frozen();
  if (rules.group != nullptr) {
    input.rule_group = rules.group->group();
    input.rule_name = rules.group->name();
  }
  input.has_layout = DeclaresLayout(parameter) || rules.layout != nullptr;
  return input;
}

// Routes the parameters of one job, one by one; holds the job's groups and compiled rules.
class Router {
 public:
  Router(const v1::JobDefinition& job, RoutingRules rules) : job_(job), rules_(std::move(rules)) {
    targets_.matrix_group = job.matrix_group();
    targets_.scalar_group = job.scalar_group();
    targets_.has_matrix_rule = false;
    for (const v1::ParameterGroup& group : job.groups()) {
      groups_[group.name()] = &group;
      targets_.has_matrix_rule |= group.rule() == v1::RULE_MUON;
    }
    for (const v1::ParameterSpec& copy : job.parameters()) {
      if (!IsCopy(copy)) continue;
      if (copy.is_embedding_or_output() ||
          kernels::IsEmbeddingOrOutputName(copy.name(), copy.shape_size())) {
        embedding_copies_.emplace(copy.tied_to(), copy.name());
      }
    }
  }

  // Routes a parameter that is no copy.
  absl::StatusOr<v1::ParameterPlacement> Route(const v1::ParameterSpec& parameter) {
    KAON_ASSIGN_OR_RETURN(const RuleOutcome rules, rules_.Match(parameter));
    kernels::RoutingInput input = InputOf(parameter, rules);
    const auto copy = embedding_copies_.find(parameter.name());
    if (copy != embedding_copies_.end()) input.embedding_copy = copy->second;
    KAON_ASSIGN_OR_RETURN(const kernels::Route route, kernels::RouteParameter(input, targets_));
    v1::ParameterPlacement row;
    row.set_group(route.group);
    row.set_route_reason(route.reason);
    if (route.group.empty()) return row;
    const auto group = groups_.find(route.group);
    if (group == groups_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name(), ": group is \"", proto::Excerpt(route.group),
                       "\", which is none of the job's ", job_.groups_size(), " groups"));
    }
    row.set_norm_group(group->second->norm_group());
    if (group->second->rule() == v1::RULE_MUON) row.mutable_layout();
    row.set_lr_multiplier(1);
    row.set_weight_decay_multiplier(1);
    row.set_counted(true);
    Overlay(parameter, rules, row);
    return row;
  }

  // Routes a copy like its original, so that both get the same updates. INVALID_ARGUMENT names both
  // if the copy, or a rule for it, requests something else.
  absl::StatusOr<v1::ParameterPlacement> RouteCopy(const v1::ParameterSpec& copy,
                                                   const v1::ParameterPlacement& original) {
    KAON_ASSIGN_OR_RETURN(const RuleOutcome rules, rules_.Match(copy));
    v1::ParameterPlacement asked = original;
    if (!copy.group().empty()) asked.set_group(copy.group());
    if (rules.group != nullptr) asked.set_group(rules.group->group());
    Overlay(copy, rules, asked);
    for (const CopiedField& field : kCopiedFields) {
      if (field.text(asked) == field.text(original)) continue;
      const v1::RoutingRule* rule = rules.*field.setter;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", copy.name(), ": ", field.name, " is ", field.text(asked),
          rule == nullptr ? "" : absl::StrCat(" by routing rule ", rule->name()), ", must be ",
          field.text(original), ", that of parameter ", copy.tied_to(), ", which it is tied to: ",
          rule == nullptr ? "leave it unset"
                          : "set it for both, or let the rule leave the copy out"));
    }
    v1::ParameterPlacement row = original;
    row.set_route_reason(absl::StrCat("copy of ", copy.tied_to()));
    row.set_counted(false);
    return row;
  }

  absl::Status CheckEachRuleMatched() const { return rules_.CheckEachMatched(); }

 private:
  // Overwrites `row` with the fields that the parameter or a rule sets. The parameter comes first:
  // rules set no field that the parameter sets itself.
  static void Overlay(const v1::ParameterSpec& parameter, const RuleOutcome& rules,
                      v1::ParameterPlacement& row) {
    std::set<std::string> used;
    const auto by_rule = [&used](const v1::RoutingRule* rule) {
      if (rule != nullptr) used.insert(rule->name());
      return rule != nullptr;
    };
    if (!parameter.norm_group().empty()) row.set_norm_group(parameter.norm_group());
    if (by_rule(rules.norm_group)) row.set_norm_group(rules.norm_group->norm_group());
    if (row.has_layout()) {
      if (DeclaresLayout(parameter)) *row.mutable_layout() = parameter.layout();
      if (by_rule(rules.layout)) *row.mutable_layout() = rules.layout->layout();
      if (row.layout().kind() == v1::MATRIX_LAYOUT_KIND_UNSPECIFIED) {
        row.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
      }
    }
    if (parameter.has_lr_multiplier()) row.set_lr_multiplier(parameter.lr_multiplier());
    if (by_rule(rules.lr_multiplier)) row.set_lr_multiplier(rules.lr_multiplier->lr_multiplier());
    if (parameter.has_weight_decay_multiplier()) {
      row.set_weight_decay_multiplier(parameter.weight_decay_multiplier());
    }
    if (by_rule(rules.weight_decay_multiplier)) {
      row.set_weight_decay_multiplier(rules.weight_decay_multiplier->weight_decay_multiplier());
    }
    if (rules.group != nullptr) used.erase(rules.group->name());
    if (used.empty()) return;
    row.set_route_reason(
        absl::StrCat(row.route_reason(), "; also rule ", absl::StrJoin(used, ", ")));
  }

  const v1::JobDefinition& job_;
  RoutingRules rules_;
  kernels::RoutingTargets targets_;
  absl::flat_hash_map<std::string, const v1::ParameterGroup*> groups_;
  // One copy that is an embedding or an output, by the name of its original.
  absl::flat_hash_map<std::string, std::string> embedding_copies_;
};

}  // namespace

absl::StatusOr<v1::Placement> RouteParameters(const v1::JobDefinition& job) {
  KAON_ASSIGN_OR_RETURN(RoutingRules rules, RoutingRules::Create(job));
  Router router(job, std::move(rules));
  v1::Placement placement;
  absl::flat_hash_map<std::string, const v1::ParameterPlacement*> originals;
  for (int id = 0; id < job.parameters_size(); ++id) {
    v1::ParameterPlacement& row = *placement.add_parameters();
    if (!IsCopy(job.parameters(id))) {
      KAON_ASSIGN_OR_RETURN(row, router.Route(job.parameters(id)));
      originals[job.parameters(id).name()] = &row;
    }
    row.set_parameter_id(static_cast<uint32_t>(id));
  }
  // A separate pass, because an original may come after its copy.
  for (v1::ParameterPlacement& row : *placement.mutable_parameters()) {
    const v1::ParameterSpec& copy = job.parameters(static_cast<int>(row.parameter_id()));
    if (!IsCopy(copy)) continue;
    const uint32_t id = row.parameter_id();
    KAON_ASSIGN_OR_RETURN(row, router.RouteCopy(copy, *originals.at(copy.tied_to())));
    row.set_parameter_id(id);
  }
  KAON_RETURN_IF_ERROR(router.CheckEachRuleMatched());
  return placement;
}

}  // namespace kaon::job
