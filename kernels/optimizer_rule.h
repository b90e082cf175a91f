// What an optimizer rule is to its callers: its hyper-parameters, its state slots, whether it is
// scale-invariant. The arithmetic is in rules/ and runs on a Backend.
// Plain values; any thread.
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

// How a parameter's weight decays ([W1]).
enum class DecayMode { kDecoupled, kIndependent, kL2, kPalm };

// How a momentum buffer is kept between updates; kInt8 as [Q1] has it.
enum class StateDType { kFloat32, kBFloat16, kInt8 };

enum class MomentumForm { kEma, kSum };

// Muon ([M1]-[M6]).
struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  MomentumForm momentum_form = MomentumForm::kEma;
  NewtonSchulzConfig newton_schulz;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  // Multiplies the scale.
  double scale_extra = 1;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  StateDType momentum_dtype = StateDType::kFloat32;
  MatrixLayout layout;
};

enum class AdamEpsMode { kOutside, kUncorrected };

// Adam ([A1]-[A5]).
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  AdamEpsMode eps_mode = AdamEpsMode::kOutside;
  bool amsgrad = false;
  bool bias_correction = true;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  // Of exp_avg.
  StateDType momentum_dtype = StateDType::kFloat32;
};

// SGD ([G1]); keeps no buffer without momentum.
struct SgdConfig {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kL2;
  StateDType momentum_dtype = StateDType::kFloat32;
};

// Lion ([G2]).
struct LionConfig {
  double beta1 = 0.95;
  double beta2 = 0.98;
  double weight_decay = 0;
  DecayMode decay_mode = DecayMode::kDecoupled;
  // Of exp_avg.
  StateDType momentum_dtype = StateDType::kFloat32;
};

using RuleConfig = std::variant<MuonConfig, AdamWConfig, SgdConfig, LionConfig>;

// One persistent buffer of optimizer state; starts as zero bytes, which every dtype reads as 0.
struct StateSlot {
  // torch's name: momentum_buffer, exp_avg, exp_avg_sq, max_exp_avg_sq.
  std::string name;
  StateDType dtype = StateDType::kFloat32;
  int64_t num_elements = 0;
  int64_t num_bytes = 0;
};

// INVALID_ARGUMENT naming field, value and range, as the rules' headers declare them; for Muon the
// arithmetic of a layout that does not fit the shape.
absl::Status ValidateRule(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// In the order in which Backend::ApplyUpdate takes them; bytes as state_codec.h keeps them.
std::vector<StateSlot> StateSlots(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// Update direction and size do not depend on the gradient's scale: exempt from norm clipping by
// default ([C7]).
bool IsScaleInvariant(const RuleConfig& rule);

// Equal matrices of one parameter that a rule orthogonalizes, and the factor on their updates
// ([S1]), extra factor included.
struct ScaledMatrices {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 0;
  double scale = 0;
};

// Of a rule and shape that ValidateRule accepts, in order of first appearance; empty for
// element-wise rules.
std::vector<ScaledMatrices> OrthogonalizedMatrices(const RuleConfig& rule,
                                                   absl::Span<const uint64_t> shape);

// "muon", "adamw", "sgd", "lion".
const char* RuleName(const RuleConfig& rule);

// Modelled time of one update, in units of one element's element-wise update; for placement
// (architecture: LPT).
double UpdateCost(const RuleConfig& rule, absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_OPTIMIZER_RULE_H_
