// The user's routing rules of a job (numerics.md section 2, rule 2), compiled once and asked for
// each parameter. Owned by the one caller of Create, which keeps the job alive; any thread.
#ifndef KAON_JOB_ROUTING_RULES_H_
#define KAON_JOB_ROUTING_RULES_H_

#include <re2/re2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/parameters.pb.h"

namespace kaon::job {

// For each field the rule that sets it for one parameter; null where none does, or where the
// parameter says it itself.
struct RuleOutcome {
  const v1::RoutingRule* group = nullptr;
  const v1::RoutingRule* norm_group = nullptr;
  const v1::RoutingRule* layout = nullptr;
  const v1::RoutingRule* lr_multiplier = nullptr;
  const v1::RoutingRule* weight_decay_multiplier = nullptr;
};

// A coordinator routes on the thread that must answer its shards in time: these bound how long it
// takes. Where RE2 matches by its automaton, 100 patterns and 100000 names take a second or two;
// patterns made to defeat that can take two minutes at the bound. Bytes of all patterns together;
// instructions of all compiled patterns times bytes of all names, which is the most steps RE2
// takes; rules that are looked at for all parameters together.
inline constexpr int64_t kMostPatternBytes = 1 << 16;
inline constexpr int64_t kMostPatternSteps = int64_t{1} << 35;
inline constexpr int64_t kMostRulesLookedAt = 16000000;

// Text of a layout, for messages.
std::string LayoutText(const v1::MatrixLayout& layout);

class RoutingRules {
 public:
  // INVALID_ARGUMENT naming the rule and what is wrong with its regular expression, or the limit
  // that all patterns together exceed.
  static absl::StatusOr<RoutingRules> Create(const v1::JobDefinition& job);

  // What all matching rules set, the highest priority first; nothing for a frozen parameter, which
  // joins nothing ([T8]). INVALID_ARGUMENT naming the parameter,
  // both rules and both values when two of equal priority set one field differently, and neither
  // the parameter itself nor a rule above them sets it; or the limit exceeded, by this parameter
  // and those asked for before.
  absl::StatusOr<RuleOutcome> Match(const v1::ParameterSpec& parameter);

  // After the last parameter. INVALID_ARGUMENT naming a rule that matched none, though it has to:
  // most likely it is mistyped (edge 51).
  absl::Status CheckEachMatched() const;

 private:
  struct Rule {
    const v1::RoutingRule* rule = nullptr;
    // Of name_glob and name_regex; the name must match each.
    std::vector<std::unique_ptr<RE2>> patterns;
    bool matched = false;
  };

  absl::Status AddPattern(Rule& rule, absl::string_view regex);

  // Falling priority.
  std::vector<Rule> rules_;
  int64_t instructions_ = 0;
  int64_t name_bytes_ = 0;
  int64_t looked_at_ = 0;
};

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTING_RULES_H_
