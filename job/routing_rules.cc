#include "job/routing_rules.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "job/glob.h"
#include "job/names.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

// Bounds what a thousand patterns may hold together.
constexpr int64_t kMaxRegexBytes = 1 << 20;

bool InRange(const v1::RoutingRule& rule, const v1::ParameterSpec& parameter) {
  const uint32_t ndim = static_cast<uint32_t>(parameter.shape_size());
  const uint64_t elements = NumElements(parameter);
  return (!rule.has_min_ndim() || ndim >= rule.min_ndim()) &&
         (!rule.has_max_ndim() || ndim <= rule.max_ndim()) &&
         (!rule.has_min_elements() || elements >= rule.min_elements()) &&
         (!rule.has_max_elements() || elements <= rule.max_elements());
}

bool HasAttribute(const v1::ParameterSpec& parameter, const std::string& wanted) {
  return std::find(parameter.attributes().begin(), parameter.attributes().end(), wanted) !=
         parameter.attributes().end();
}

std::string LayoutText(const v1::MatrixLayout& layout) {
  return absl::StrCat(NameOf(layout.kind()), " sizes [", absl::StrJoin(layout.sizes(), ", "),
                      "] num_heads ", layout.num_heads());
}

// The value of the field as text; empty when the rule does not set it.
using FieldText = std::string (*)(const v1::RoutingRule&);

struct RuleField {
  absl::string_view name;
  const v1::RoutingRule* RuleOutcome::*setter;
  FieldText text;
};

const RuleField kFields[] = {
    {"group", &RuleOutcome::group, [](const v1::RoutingRule& rule) { return rule.group(); }},
    {"norm_group", &RuleOutcome::norm_group,
     [](const v1::RoutingRule& rule) { return rule.norm_group(); }},
    {"layout", &RuleOutcome::layout,
     [](const v1::RoutingRule& rule) {
       return rule.has_layout() ? LayoutText(rule.layout()) : std::string();
     }},
    {"lr_multiplier", &RuleOutcome::lr_multiplier,
     [](const v1::RoutingRule& rule) {
       return rule.has_lr_multiplier() ? NumberText(rule.lr_multiplier()) : std::string();
     }},
    {"weight_decay_multiplier", &RuleOutcome::weight_decay_multiplier,
     [](const v1::RoutingRule& rule) {
       return rule.has_weight_decay_multiplier() ? NumberText(rule.weight_decay_multiplier())
                                                 : std::string();
     }},
};

// Takes over what `rule` sets; rules come by falling priority.
absl::Status Merge(const v1::ParameterSpec& parameter, const v1::RoutingRule& rule,
                   RuleOutcome& outcome) {
  for (const RuleField& field : kFields) {
    const std::string value = field.text(rule);
    if (value.empty()) continue;
    const v1::RoutingRule*& winner = outcome.*field.setter;
    if (winner == nullptr) {
      winner = &rule;
      continue;
    }
    const std::string other = field.text(*winner);
    if (winner->priority() > rule.priority() || other == value) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name(), ": routing rules ", winner->name(), " and ", rule.name(),
        " of priority ", rule.priority(), " contradict each other: ", field.name, " is ", other,
        " and ", value, ", must be equal or of different priority"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RoutingRules> RoutingRules::Create(const v1::JobDefinition& job) {
  RoutingRules rules;
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxRegexBytes);
  for (const v1::RoutingRule& rule : job.routing_rules()) {
    Rule& compiled = rules.rules_.emplace_back();
    compiled.rule = &rule;
    if (rule.name_regex().empty()) continue;
    compiled.regex = std::make_unique<RE2>(rule.name_regex(), options);
    if (compiled.regex->ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("routing rule ", rule.name(), ": name_regex \"",
                                                   rule.name_regex(),
                                                   "\" is no RE2: ", compiled.regex->error()));
  }
  // Of equal ones the first of the job is named first.
  std::stable_sort(rules.rules_.begin(), rules.rules_.end(), [](const Rule& a, const Rule& b) {
    return a.rule->priority() > b.rule->priority();
  });
  return rules;
}

bool RoutingRules::Matches(const Rule& rule, const v1::ParameterSpec& parameter) {
  const v1::RoutingRule& wants = *rule.rule;
  return InRange(wants, parameter) &&
         (wants.attribute().empty() || HasAttribute(parameter, wants.attribute())) &&
         (wants.name_glob().empty() || GlobMatches(wants.name_glob(), parameter.name())) &&
         (rule.regex == nullptr || RE2::PartialMatch(parameter.name(), *rule.regex));
}

absl::StatusOr<RuleOutcome> RoutingRules::Match(const v1::ParameterSpec& parameter) const {
  RuleOutcome outcome;
  for (const Rule& rule : rules_) {
    if (!Matches(rule, parameter)) continue;
    KAON_RETURN_IF_ERROR(Merge(parameter, *rule.rule, outcome));
  }
  return outcome;
}

}  // namespace kaon::job
