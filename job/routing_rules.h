// The user's routing rules of a job (numerics.md section 2, rule 2), compiled once and asked for
// each parameter. Owned by the one caller of Create, which keeps the job alive; any thread.
#ifndef KAON_JOB_ROUTING_RULES_H_
#define KAON_JOB_ROUTING_RULES_H_

#include <re2/re2.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// For each field the rule that sets it for one parameter; null where none does.
struct RuleOutcome {
  const v1::RoutingRule* group = nullptr;
  const v1::RoutingRule* norm_group = nullptr;
  const v1::RoutingRule* layout = nullptr;
  const v1::RoutingRule* lr_multiplier = nullptr;
  const v1::RoutingRule* weight_decay_multiplier = nullptr;
};

class RoutingRules {
 public:
  // INVALID_ARGUMENT naming the rule and what is wrong with its regular expression.
  static absl::StatusOr<RoutingRules> Create(const v1::JobDefinition& job);

  // What all matching rules set, the highest priority first. INVALID_ARGUMENT naming the parameter,
  // both rules and both values when two of equal priority set one field differently.
  absl::StatusOr<RuleOutcome> Match(const v1::ParameterSpec& parameter) const;

 private:
  struct Rule {
    const v1::RoutingRule* rule = nullptr;
    // Null when the rule has none.
    std::unique_ptr<RE2> regex;
  };

  static bool Matches(const Rule& rule, const v1::ParameterSpec& parameter);

  // Falling priority.
  std::vector<Rule> rules_;
};

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTING_RULES_H_
