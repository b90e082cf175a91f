#include "job/routing_rules.h"

#include <algorithm>
#include <iterator>
#include <string>
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

// Of the automaton of all patterns, half of it for their program.
constexpr int64_t kAutomatonBytes = 64 << 20;

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
  // Whether the parameter says it itself, so that no rule is asked.
  bool (*is_own)(const v1::ParameterSpec&);
};

const RuleField kFields[] = {
    {"group", &RuleOutcome::group, [](const v1::RoutingRule& rule) { return rule.group(); },
     [](const v1::ParameterSpec& parameter) { return !parameter.group().empty(); }},
    {"norm_group", &RuleOutcome::norm_group,
     [](const v1::RoutingRule& rule) { return rule.norm_group(); },
     [](const v1::ParameterSpec& parameter) { return !parameter.norm_group().empty(); }},
    {"layout", &RuleOutcome::layout,
     [](const v1::RoutingRule& rule) {
       return rule.has_layout() ? LayoutText(rule.layout()) : std::string();
     },
     [](const v1::ParameterSpec& parameter) { return parameter.has_layout(); }},
    {"lr_multiplier", &RuleOutcome::lr_multiplier,
     [](const v1::RoutingRule& rule) {
       return rule.has_lr_multiplier() ? NumberText(rule.lr_multiplier()) : std::string();
     },
     [](const v1::ParameterSpec& parameter) { return parameter.has_lr_multiplier(); }},
    {"weight_decay_multiplier", &RuleOutcome::weight_decay_multiplier,
     [](const v1::RoutingRule& rule) {
       return rule.has_weight_decay_multiplier() ? NumberText(rule.weight_decay_multiplier())
                                                 : std::string();
     },
     [](const v1::ParameterSpec& parameter) { return parameter.has_weight_decay_multiplier(); }},
};

// Takes over what `rule` sets; rules come by falling priority.
absl::Status Merge(const v1::ParameterSpec& parameter, const v1::RoutingRule& rule,
                   RuleOutcome& outcome) {
  for (const RuleField& field : kFields) {
    const v1::RoutingRule*& winner = outcome.*field.setter;
    if (winner != nullptr && winner->priority() > rule.priority()) continue;
    if (field.is_own(parameter)) continue;
    const std::string value = field.text(rule);
    if (value.empty()) continue;
    if (winner == nullptr) {
      winner = &rule;
      continue;
    }
    const std::string other = field.text(*winner);
    if (other == value) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name(), ": routing rules ", winner->name(), " and ", rule.name(),
        " of priority ", rule.priority(), " contradict each other: ", field.name, " is ", other,
        " and ", value, ", must be equal or of different priority"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RoutingRules::AddPattern(size_t rule, absl::string_view regex) {
  const v1::RoutingRule& of = *rules_[rule].rule;
  std::string error;
  if (patterns_->Add(re2::StringPiece(regex.data(), regex.size()), &error) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("routing rule ", of.name(), ": name_regex \"",
                                                   of.name_regex(), "\" is no RE2: ", error));
  }
  rule_of_pattern_.push_back(rule);
  ++rules_[rule].num_patterns;
  return absl::OkStatus();
}

absl::StatusOr<RoutingRules> RoutingRules::Create(const v1::JobDefinition& job) {
  RoutingRules rules;
  int64_t pattern_bytes = 0;
  for (const v1::RoutingRule& rule : job.routing_rules()) {
    rules.rules_.push_back({&rule, 0});
    pattern_bytes += static_cast<int64_t>(rule.name_glob().size() + rule.name_regex().size());
  }
  if (pattern_bytes > kMostPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("routing_rules have ", pattern_bytes,
                                                   " bytes of name_glob and name_regex, must be ",
                                                   "0 .. ", kMostPatternBytes));
  }
  // Of equal ones the first of the job is named first.
  std::stable_sort(rules.rules_.begin(), rules.rules_.end(), [](const Rule& a, const Rule& b) {
    return a.rule->priority() > b.rule->priority();
  });
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kAutomatonBytes);
  rules.patterns_ = std::make_unique<RE2::Set>(options, RE2::UNANCHORED);
  for (size_t i = 0; i < rules.rules_.size(); ++i) {
    const v1::RoutingRule& rule = *rules.rules_[i].rule;
    if (!rule.name_glob().empty()) {
      KAON_RETURN_IF_ERROR(rules.AddPattern(i, GlobToRegex(rule.name_glob())));
    }
    if (!rule.name_regex().empty()) KAON_RETURN_IF_ERROR(rules.AddPattern(i, rule.name_regex()));
    if (rules.rules_[i].num_patterns == 0) rules.rules_without_pattern_.push_back(i);
  }
  if (rules.rule_of_pattern_.empty()) {
    rules.patterns_ = nullptr;
  } else if (!rules.patterns_->Compile()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "routing_rules: the patterns of ", rules.rules_.size(), " rules need more than ",
        kAutomatonBytes / 2, " bytes together; repetitions such as a{1000} need most"));
  }
  return rules;
}

absl::StatusOr<std::vector<size_t>> RoutingRules::MatchingNames(
    const v1::ParameterSpec& parameter) const {
  std::vector<size_t> matching;
  if (patterns_ == nullptr) return matching;
  std::vector<int> found;
  RE2::Set::ErrorInfo error{RE2::Set::kNoError};
  patterns_->Match(parameter.name(), &found, &error);
  if (error.kind != RE2::Set::kNoError) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name(), ": matching it needs more than ",
                     kAutomatonBytes / 2, " bytes; routing_rules must have simpler patterns"));
  }
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < found.size();) {
    const size_t rule = rule_of_pattern_[found[i]];
    const size_t first = i;
    while (i < found.size() && rule_of_pattern_[found[i]] == rule) ++i;
    if (i - first == static_cast<size_t>(rules_[rule].num_patterns)) matching.push_back(rule);
  }
  return matching;
}

absl::StatusOr<RuleOutcome> RoutingRules::Match(const v1::ParameterSpec& parameter) {
  KAON_ASSIGN_OR_RETURN(const std::vector<size_t> matching, MatchingNames(parameter));
  std::vector<size_t> candidates;
  candidates.reserve(matching.size() + rules_without_pattern_.size());
  std::merge(matching.begin(), matching.end(), rules_without_pattern_.begin(),
             rules_without_pattern_.end(), std::back_inserter(candidates));
  looked_at_ += static_cast<int64_t>(candidates.size());
  if (looked_at_ > kMostRulesLookedAt) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name(), ": with it, ", looked_at_, " times a routing rule matches ",
        "a parameter's name, must be <= ", kMostRulesLookedAt, " for the whole job"));
  }
  RuleOutcome outcome;
  for (const size_t i : candidates) {
    const v1::RoutingRule& rule = *rules_[i].rule;
    if (!InRange(rule, parameter)) continue;
    if (!rule.attribute().empty() && !HasAttribute(parameter, rule.attribute())) continue;
    KAON_RETURN_IF_ERROR(Merge(parameter, rule, outcome));
  }
  return outcome;
}

}  // namespace kaon::job
