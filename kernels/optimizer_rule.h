// Declarations of an optimizer rule for its callers: hyper-parameters, state slots, and whether it
// is scale-invariant. The arithmetic is in rules/ and runs on a Backend. Plain values; any thread.
#ifndef KAON_KERNELS_OPTIMIZER_RULE_H_
#define KAON_KERNELS_OPTIMIZER_RULE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/matrix_layout.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

// Kinds of weight decay (formulas [W1]).
enum class DecayMode { kDecoupled, kIndependent, kL2, kPalm };

// Storage type of a slot of state between updates. Momentum may be kInt8, in groups with a scale
// each (rule [Q1]). Second moments may be kSqrtUInt8, the roots in such groups (rule [Q2]).
enum class StateDType { kFloat32, kBFloat16, kInt8, kSqrtUInt8 };

enum class MomentumForm { kEma, kSum };

// Hyper-parameters of Muon (numerics.md, formulas [M1]-[M6]).
struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  MomentumForm momentum_form = MomentumForm::kEma;
  NewtonSchulzConfig newton_schulz;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  // Extra factor on the scale.
  double scale_extra = 1;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  StateDType momentum_dtype = StateDType::kFloat32;
  MatrixLayout layout;
};

enum class AdamEpsMode { kOutside, kUncorrected };

// Hyper-parameters of Adam and AdamW (formulas [A1]-[A5]).
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  AdamEpsMode eps_mode = AdamEpsMode::kOutside;
  bool amsgrad = false;
  bool bias_correction = true;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  // Storage type of exp_avg.
  StateDType momentum_dtype = StateDType::kFloat32;
  // Storage type of exp_avg_sq and max_exp_avg_sq: kFloat32 or kSqrtUInt8.
  StateDType exp_avg_sq_dtype = StateDType::kFloat32;
};

// Hyper-parameters of SGD (formula [G1]); without momentum it has no buffer.
struct SgdConfig {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kL2;
  StateDType momentum_dtype = StateDType::kFloat32;
};

// Hyper-parameters of Lion (numerics.md, formula [G2]).
struct LionConfig {
  double beta1 = 0.95;
  double beta2 = 0.98;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  // Storage type of exp_avg.
  StateDType momentum_dtype = StateDType::kFloat32;
};

// Returns the storage type of slot `k` of a rule: the first is the momentum.
template <typename Config>
StateDType SlotDType(const Config& config, int k) {
  if (k == 0) return config.momentum_dtype;
  if constexpr (requires { config.exp_avg_sq_dtype; }) return config.exp_avg_sq_dtype;
  return StateDType::kFloat32;
}

using RuleConfig = std::variant<MuonConfig, AdamWConfig, SgdConfig, LionConfig>;

// One persistent buffer of optimizer state. It starts as zero bytes, which every dtype reads as 0.
struct StateSlot {
  // PyTorch's name: momentum_buffer, exp_avg, exp_avg_sq, max_exp_avg_sq.
  std::string name;
  StateDType dtype = StateDType::kFloat32;
  int64_t num_elements = 0;
  int64_t num_bytes = 0;
};

// Checks hyper-parameters. INVALID_ARGUMENT names field, value and range, as the rules' headers
// declare them. For Muon it also shows the arithmetic of a layout that does not fit the shape.
absl::Status ValidateRule(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// Returns the slots in the order of UpdateBuffers::state; sizes in bytes as stored by
// state_codec.h.
std::vector<StateSlot> StateSlots(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// Returns true if direction and size of the update do not depend on the gradient's scale. Such a
// rule is exempt from norm clipping by default ([C7]).
bool IsScaleInvariant(const RuleConfig& rule);

// Equal matrices of one parameter that a rule orthogonalizes, and the factor on their updates
// (table [S1]), including scale_extra.
struct ScaledMatrices {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
  double scale = 0;
};

// Returns the matrices, in order of first appearance; empty for element-wise rules. Rule and shape
// have passed ValidateRule.
std::vector<ScaledMatrices> OrthogonalizedMatrices(const RuleConfig& rule,
                                                   absl::Span<const uint64_t> shape);

// Returns "muon", "adamw", "sgd" or "lion".
const char* RuleName(const RuleConfig& rule);

// Returns a model of the time of one update, in units of one element of an element-wise update.
// Placement uses it (architecture.md: LPT).
double UpdateCost(const RuleConfig& rule, absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_OPTIMIZER_RULE_H_
