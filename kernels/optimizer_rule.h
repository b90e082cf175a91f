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

namespace kaon::kernels {

enum class NsCoefficients { kJordan, kPolarExpress };
enum class UpdateScale { kOriginal, kMatchRmsAdamW };
enum class NsDType { kFloat32, kBFloat16 };

// Muon (numerics.md [M1]-[M6]): ema momentum, Nesterov, Newton-Schulz, scale, decoupled decay.
struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  NsCoefficients ns_coefficients = NsCoefficients::kJordan;
  int ns_steps = 5;
  UpdateScale scale = UpdateScale::kMatchRmsAdamW;
  NsDType ns_dtype = NsDType::kFloat32;
  double weight_decay = 0;
  // Stored as (fan_in, fan_out) ([L1]).
  bool transposed = false;
};

// AdamW ([A1], [A2] eps outside the root, [A3] decoupled decay).
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
};

using RuleConfig = std::variant<MuonConfig, AdamWConfig>;

// One persistent fp32 buffer of optimizer state; starts at zero.
struct StateSlot {
  // torch's name: momentum_buffer, exp_avg, exp_avg_sq.
  std::string name;
  int64_t num_elements = 0;
};

// INVALID_ARGUMENT naming field, value and range: 0 <= momentum, beta < 1; eps > 0; 1 <= ns_steps
// <= 99; weight_decay finite and >= 0; Muon needs a 2-D shape.
absl::Status ValidateRule(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// In the order in which Backend::ApplyUpdate takes them.
std::vector<StateSlot> StateSlots(const RuleConfig& rule, absl::Span<const uint64_t> shape);

// Update direction and size do not depend on the gradient's scale: exempt from norm clipping by
// default ([C7]).
bool IsScaleInvariant(const RuleConfig& rule);

// "muon", "adamw".
const char* RuleName(const RuleConfig& rule);

// Modelled time of one update, in units of one element's element-wise update; for placement
// (architecture: LPT).
double UpdateCost(const RuleConfig& rule, absl::Span<const uint64_t> shape);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_OPTIMIZER_RULE_H_
