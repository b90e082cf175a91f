#include "job/routes.h"

#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/routing_rules.h"
#include "kernels/routing.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

bool DeclaresLayout(const v1::ParameterSpec& parameter) {
  return parameter.layout().kind() != v1::MATRIX_LAYOUT_KIND_UNSPECIFIED;
}

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

// One job's groups and rules, compiled; routes its parameters one by one.
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
  }

  absl::StatusOr<v1::ParameterPlacement> Route(const v1::ParameterSpec& parameter) {
    KAON_ASSIGN_OR_RETURN(const RuleOutcome rules, rules_.Match(parameter));
    KAON_ASSIGN_OR_RETURN(const kernels::Route route,
                          kernels::RouteParameter(InputOf(parameter, rules), targets_));
    v1::ParameterPlacement row;
    row.set_group(route.group);
    row.set_route_reason(route.reason);
    if (route.group.empty()) return row;
    const auto group = groups_.find(route.group);
    if (group == groups_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name(), ": group is \"", route.group,
                       "\", which is none of the job's ", job_.groups_size(), " groups"));
    }
    Complete(parameter, *group->second, rules, row);
    return row;
  }

  absl::Status CheckEachRuleMatched() const { return rules_.CheckEachMatched(); }

 private:
  // What the parameter says of itself beats what rules say, and both beat its group.
  static void Complete(const v1::ParameterSpec& parameter, const v1::ParameterGroup& group,
                       const RuleOutcome& rules, v1::ParameterPlacement& row) {
    std::set<std::string> used;
    const auto by_rule = [&](bool own, const v1::RoutingRule* rule) {
      if (own || rule == nullptr) return false;
      used.insert(rule->name());
      return true;
    };
    row.set_norm_group(group.norm_group());
    if (!parameter.norm_group().empty()) row.set_norm_group(parameter.norm_group());
    if (by_rule(!parameter.norm_group().empty(), rules.norm_group)) {
      row.set_norm_group(rules.norm_group->norm_group());
    }
    if (group.rule() == v1::RULE_MUON) {
      *row.mutable_layout() = parameter.layout();
      if (by_rule(DeclaresLayout(parameter), rules.layout)) {
        *row.mutable_layout() = rules.layout->layout();
      }
      if (row.layout().kind() == v1::MATRIX_LAYOUT_KIND_UNSPECIFIED) {
        row.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
      }
    }
    row.set_lr_multiplier(parameter.has_lr_multiplier() ? parameter.lr_multiplier() : 1);
    if (by_rule(parameter.has_lr_multiplier(), rules.lr_multiplier)) {
      row.set_lr_multiplier(rules.lr_multiplier->lr_multiplier());
    }
    row.set_weight_decay_multiplier(
        parameter.has_weight_decay_multiplier() ? parameter.weight_decay_multiplier() : 1);
    if (by_rule(parameter.has_weight_decay_multiplier(), rules.weight_decay_multiplier)) {
      row.set_weight_decay_multiplier(rules.weight_decay_multiplier->weight_decay_multiplier());
    }
    row.set_counted(parameter.tied_to().empty());
    if (rules.group != nullptr) used.erase(rules.group->name());
    if (used.empty()) return;
    row.set_route_reason(
        absl::StrCat(row.route_reason(), "; also rule ", absl::StrJoin(used, ", ")));
  }

  const v1::JobDefinition& job_;
  RoutingRules rules_;
  kernels::RoutingTargets targets_;
  absl::flat_hash_map<std::string, const v1::ParameterGroup*> groups_;
};

}  // namespace

absl::StatusOr<v1::Placement> RouteParameters(const v1::JobDefinition& job) {
  KAON_ASSIGN_OR_RETURN(RoutingRules rules, RoutingRules::Create(job));
  Router router(job, std::move(rules));
  v1::Placement placement;
  for (int id = 0; id < job.parameters_size(); ++id) {
    KAON_ASSIGN_OR_RETURN(v1::ParameterPlacement row, router.Route(job.parameters(id)));
    row.set_parameter_id(static_cast<uint32_t>(id));
    *placement.add_parameters() = std::move(row);
  }
  KAON_RETURN_IF_ERROR(router.CheckEachRuleMatched());
  return placement;
}

}  // namespace kaon::job
