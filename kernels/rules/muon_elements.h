// The element-wise parts of Muon: momentum and direction before the orthogonalization (formulas
// [M2] and [M3]), decay and weights after it (formula [M5]). Abseil-free, so that a CUDA kernel can
// include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_MUON_ELEMENTS_H_
#define KAON_KERNELS_RULES_MUON_ELEMENTS_H_

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/mutation.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/weight_decay.h"

namespace kaon::kernels {

struct MuonMomentumScalars {
  ClipScalars clip;
  float momentum;
  // Share of the gradient that enters the momentum: 1 - mu for `ema`, exactly 1 for `sum`.
  float grad_share;
  bool nesterov;
  DecayScalars decay;
};

// Updates M <- mu M + share g in place, where g is the clipped gradient, with `l2` decay of
// `param`. Returns the direction: mu M + share g with the updated M for Nesterov, else M (formulas
// [M1] and [M2]).
KAON_HOST_DEVICE float MuonDirection(const MuonMomentumScalars& s, float grad, float param,
                                     float& momentum) {
  const float clipped =
      Mutated(Mutation::kClipAfterMomentum) ? grad : ClippedGradient(s.clip, grad);
  const float share = s.grad_share * DecayedGradient(s.decay, clipped, param);
  const float before = momentum;
  momentum = std::fma(s.momentum, momentum, share);
  const float ahead = std::fma(
      s.momentum, Mutated(Mutation::kNesterovWithoutFreshMomentum) ? before : momentum, share);
  return s.nesterov ? ahead : momentum;
}

struct MuonWeightScalars {
  // Decay by the base lr; the scale of the shape does not affect it (formula [M5]).
  DecayScalars decay;
  // Product of lr and the scale of the shape.
  float step_size;
};

// Returns the weight after decay and then the update (formula [M5]).
KAON_HOST_DEVICE float MuonWeight(const MuonWeightScalars& s, float orthogonal, float param) {
  if (Mutated(Mutation::kDecayAfterUpdate)) {
    return DecayedWeight(s.decay, std::fma(-s.step_size, orthogonal, param));
  }
  return std::fma(-s.step_size, orthogonal, DecayedWeight(s.decay, param));
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_MUON_ELEMENTS_H_
