// Update: one step of one parameter by its rule, as a backend runs it: scalars, buffers, result.
// Plain values. Any thread.
#ifndef KAON_KERNELS_UPDATE_H_
#define KAON_KERNELS_UPDATE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/grad_view.h"
#include "kernels/optimizer_rule.h"
#include "kernels/region.h"

namespace kaon::kernels {

// Per-step scalars of one parameter's update.
struct UpdateScalars {
  double lr = 0;
  // Multiplies the gradient before anything else (rule [C9]). Exactly 1 leaves it bit-identical
  // (rule [C5]).
  double clip_factor = 1;
  // Number of this update of this parameter, from 1; the step counter of the rules' formulas.
  int64_t t = 1;
  // Selects the keys of the result's digests; no number depends on it.
  uint32_t parameter_id = 0;
};

// Outputs of an update. A rule that orthogonalizes can compute the weights before the decision that
// needs them, and the cheap state after it. kWeights and then kState, with otherwise equal
// arguments, give the bits of kAll. Other rules accept kAll only (CHECK).
enum class UpdatePart { kAll, kWeights, kState };

// Buffers of one parameter's update, in the backend's space. The caller owns them. The gradient and
// the fp32 weights have the parameter's element count.
struct UpdateBuffers {
  // The update uses the fp32 values of the gradient, whatever its dtype.
  GradView grad;
  ConstRegion param;
  // Either the same memory as `param`, or disjoint from it.
  Region new_param;
  // One region per slot, with the order and sizes of StateSlots(), aligned for float; updated in
  // place.
  absl::Span<const Region> state;
  // Buffers that are not part of the output stay unchanged.
  UpdatePart part = UpdatePart::kAll;
};

// Why an update left the weights unchanged.
enum class UpdateFault {
  // No fault: new_param holds the update.
  kNone,
  // An element of the new weights would not be finite.
  kNotFinite,
  // The orthogonalized update of a matrix of rank r has a norm above 1.5 sqrt(r). No correct
  // Newton-Schulz result has one; MostOrthogonalNorm gives the exact bound.
  kTooLarge
};

struct UpdateResult {
  // Number of Newton-Schulz updates of the parameter, not of its blocks: 1 for the weights of Muon,
  // 0 for element-wise rules.
  int newton_schulz_calls = 0;
  // Digests by kernels/reduce/digest.h of the written data, computed during the write.
  // weights_digest is that of new_param as slot 0. slots_digest is the sum over the bytes of state
  // slots 1, 2, and so on. A digest is 0 if its data was not written.
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  // Bits of the largest magnitude in new_param; 0 if it was not written.
  uint32_t largest_weight_bits = 0;
  // After a fault new_param holds the values of param, and the state is stepped all the same. If
  // both are the same memory, an element-wise rule has already overwritten it with values that are
  // not finite.
  UpdateFault fault = UpdateFault::kNone;
};

// Rule and shape of one parameter whose update is planned.
struct SizedUpdate {
  // Null for a parameter that no rule steps.
  const RuleConfig* rule = nullptr;
  absl::Span<const uint64_t> shape;
};

// One update of one parameter. The caller has checked the arguments with ValidateRule and owns what
// they point to.
struct Update {
  const RuleConfig* rule = nullptr;
  UpdateScalars scalars;
  absl::Span<const uint64_t> shape;
  UpdateBuffers buffers;
  // Written by RunUpdates.
  UpdateResult result;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_UPDATE_H_
