#include "job/routing_rules.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "job/glob.h"
#include "job/names.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

// Bytes for one compiled pattern and for matching it.
constexpr int64_t kPatternMemory = 1 << 20;

bool MatchesAll(const std::vector<std::unique_ptr<RE2>>& patterns, const std::string& name) {
  return std::all_of(patterns.begin(), patterns.end(),
                     [&name](const auto& pattern) { return RE2::PartialMatch(name, *pattern); });
}

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

// Returns the value of the field as text; empty if the rule does not set it.
using FieldText = std::string (*)(const v1::RoutingRule&);

struct RuleField {
  absl::string_view name;
  const v1::RoutingRule* RuleOutcome::*setter;
  FieldText text;
  // Returns whether the parameter sets the field itself: then no rule applies.
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

// Merges the fields that `rule` sets. Call it in order of falling priority.
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

std::string LayoutText(const v1::MatrixLayout& layout) {
  return absl::StrCat(NameOf(layout.kind()), " sizes [", absl::StrJoin(layout.sizes(), ", "),
                      "] num_heads ", layout.num_heads());
}

absl::Status RoutingRules::AddPattern(Rule& rule, absl::string_view regex) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kPatternMemory);
  auto pattern = std::make_unique<RE2>(re2::StringPiece(regex.data(), regex.size()), options);
  if (!pattern->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("routing rule ", rule.rule->name(), ": name_regex \"",
                     proto::Excerpt(rule.rule->name_regex()),
                     "\" is no RE2: ", proto::Excerpt(pattern->error())));
  }
  instructions_ += pattern->ProgramSize();
  rule.patterns.push_back(std::move(pattern));
  return absl::OkStatus();
}

absl::StatusOr<RoutingRules> RoutingRules::Create(const v1::JobDefinition& job) {
  RoutingRules rules;
  int64_t pattern_bytes = 0;
  for (const v1::RoutingRule& rule : job.routing_rules()) {
    rules.rules_.push_back({&rule, {}, false});
    pattern_bytes += static_cast<int64_t>(rule.name_glob().size() + rule.name_regex().size());
  }
  if (pattern_bytes > kMostPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("routing_rules have ", pattern_bytes,
                                                   " bytes of name_glob and name_regex, must be ",
                                                   "0 .. ", kMostPatternBytes));
  }
  // A stable sort: an error names rules of equal priority in the job's order.
  std::stable_sort(rules.rules_.begin(), rules.rules_.end(), [](const Rule& a, const Rule& b) {
    return a.rule->priority() > b.rule->priority();
  });
  for (Rule& rule : rules.rules_) {
    if (!rule.rule->name_glob().empty()) {
      KAON_RETURN_IF_ERROR(rules.AddPattern(rule, GlobToRegex(rule.rule->name_glob())));
    }
    if (!rule.rule->name_regex().empty()) {
      KAON_RETURN_IF_ERROR(rules.AddPattern(rule, rule.rule->name_regex()));
    }
  }
  return rules;
}

absl::StatusOr<RuleOutcome> RoutingRules::Match(const v1::ParameterSpec& parameter) {
  name_bytes_ += static_cast<int64_t>(parameter.name().size());
  if (instructions_ * name_bytes_ > kMostPatternSteps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name(), ": with it, routing_rules' patterns of ", instructions_,
        " instructions match ", name_bytes_, " bytes of names; the product must be <= ",
        kMostPatternSteps, ": use fewer or simpler patterns, or attributes"));
  }
  looked_at_ += static_cast<int64_t>(rules_.size());
  if (looked_at_ > kMostRulesLookedAt) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name(), ": with it, ", looked_at_, " times a routing rule is ",
        "looked at for a parameter, must be <= ", kMostRulesLookedAt, " for the whole job"));
  }
  RuleOutcome outcome;
  for (Rule& compiled : rules_) {
    const v1::RoutingRule& rule = *compiled.rule;
    if (!InRange(rule, parameter)) continue;
    if (!rule.attribute().empty() && !HasAttribute(parameter, rule.attribute())) continue;
    if (!MatchesAll(compiled.patterns, parameter.name())) continue;
    compiled.matched = true;
    if (!parameter.frozen()) KAON_RETURN_IF_ERROR(Merge(parameter, rule, outcome));
  }
  return outcome;
}

absl::Status RoutingRules::CheckEachMatched() const {
  for (const Rule& compiled : rules_) {
    if (compiled.matched || compiled.rule->may_match_none()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("routing rule ", compiled.rule->name(),
                     " matches 0 parameters, must match at least 1 unless may_match_none is set"));
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
