// Decides a step in float64, written from the text of numerics.md ([C1]-[C8], [T2b]-[T5], [T7],
// [T8]; parameters.proto for schedules). Tests compare decide() with it. Shares no code with
// kernels/ or job/; it takes plain numbers for the same reason. Values and functions of them; any
// thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_DECISION_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_DECISION_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace kaon::reference {

struct DecisionGroup {
  bool scale_invariant = false;
  // The group's own policy on its exemption, if it has one ([C7]).
  std::optional<bool> exempt_by_policy;

  bool exempt() const { return exempt_by_policy.value_or(scale_invariant); }
};

struct DecisionParameter {
  int group = 0;
  // The group 0 is main.
  int norm_group = 0;
  bool frozen = false;
  bool is_copy = false;
  bool missing = false;
  // Mean over the workers, without the loss scale.
  std::vector<double> grad;
};

struct DecisionPolicy {
  std::vector<DecisionGroup> groups;
  // Limits by norm group; 0 = off.
  std::vector<double> max_grad_norms;
  bool scope_is_all = false;
  double floor = 0;
  double skip_threshold = std::numeric_limits<double>::infinity();
};

struct DecidedNorm {
  double norm = 0;
  double live_norm = 0;
  double clip_factor = 1;
};

struct Decision {
  bool applied = true;
  // If false, `norm_groups` and `group_norms` are meaningless.
  bool has_norms = true;
  std::vector<DecidedNorm> norm_groups;
  std::vector<double> group_norms;
  // True if some norm was needed to decide ([T5]).
  bool read_a_norm = false;
};

Decision DecideStep(const DecisionPolicy& policy, const std::vector<DecisionParameter>& parameters);

// The loss scale, which overflows shrink and successes grow ([T2b]).
struct LossScaler {
  bool dynamic = false;
  double scale = 1;
  double min_scale = 1;
  int growth_interval = 1;
  int hysteresis = 1;
  // The steps change these counters.
  int steps_without_overflow = 0;
  int overflows_left = 1;

  void AfterStep(bool overflow);
};

enum class Descent { kNone, kCosine, kLinear, kLinearAtTheEnd };

struct ScheduleShape {
  Descent descent = Descent::kNone;
  int64_t warmup = 0;
  int64_t total = 0;
  // Number of falling steps of kLinearAtTheEnd.
  int64_t decay = 0;
  double final_factor = 0;
};

// Returns the factor of the step that follows n applied steps.
double FactorAt(const ScheduleShape& shape, int64_t n);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_DECISION_H_
