// Compiles the routing rules of a job (numerics.md section 2, rule 2) once and matches them with
// each parameter. Any thread, one at a time. The job must outlive the rules.
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

// The rule that sets each field of one parameter. Null if no rule does, or if the parameter sets
// the field itself.
struct RuleOutcome {
  const v1::RoutingRule* group = nullptr;
  const v1::RoutingRule* norm_group = nullptr;
  const v1::RoutingRule* layout = nullptr;
  const v1::RoutingRule* lr_multiplier = nullptr;
  const v1::RoutingRule* weight_decay_multiplier = nullptr;
};

// Bounds on the time that routing takes: the coordinator routes on the thread that must answer its
// shards in time. Where RE2 uses its automaton, 100 patterns and 100000 names take 1 to 2 seconds.
// Patterns that defeat the automaton can take 2 minutes at the bound.
// The first bounds the bytes of all patterns together. The second bounds the steps of RE2:
// instructions of all compiled patterns times bytes of all names. The third bounds the rules tried,
// summed over all parameters.
inline constexpr int64_t kMostPatternBytes = 1 << 16;
inline constexpr int64_t kMostPatternSteps = int64_t{1} << 35;
inline constexpr int64_t kMostRulesLookedAt = 16000000;

// Returns the text of a layout, for messages.
std::string LayoutText(const v1::MatrixLayout& layout);

class RoutingRules {
 public:
  // INVALID_ARGUMENT names the rule and the error of its regular expression, or the limit that all
  // patterns together exceed.
  static absl::StatusOr<RoutingRules> Create(const v1::JobDefinition& job);

  // Returns the settings of all matching rules; the highest priority wins. Returns nothing for a
  // frozen parameter, which joins no group ([T8]).
  // INVALID_ARGUMENT names the parameter, both rules and both values if two rules of equal priority
  // disagree about a field. There is no error if the parameter, or a rule of higher priority, sets
  // that field. The same code reports a limit that this parameter and the earlier ones exceed.
  absl::StatusOr<RuleOutcome> Match(const v1::ParameterSpec& parameter);

  // Call it after the last parameter. INVALID_ARGUMENT names a rule that matched no parameter,
  // unless the rule allows that: most likely it is mistyped (edge case 51).
  absl::Status CheckEachMatched() const;

 private:
  struct Rule {
    const v1::RoutingRule* rule = nullptr;
    // Patterns of name_glob and name_regex; the name must match each of them.
    std::vector<std::unique_ptr<RE2>> patterns;
    bool matched = false;
  };

  absl::Status AddPattern(Rule& rule, absl::string_view regex);

  // Sorted by falling priority.
  std::vector<Rule> rules_;
  int64_t instructions_ = 0;
  int64_t name_bytes_ = 0;
  int64_t looked_at_ = 0;
};

}  // namespace kaon::job

#endif  // KAON_JOB_ROUTING_RULES_H_
