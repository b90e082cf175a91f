// The element-wise halves of Muon on either side of the orthogonalization: momentum and direction
// ([M2], [M3]) before it, decay and weights ([M5]) after it. Abseil-free, so that a CUDA kernel
// includes it as it stands. Pure functions; any thread.
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
  // Of the gradient that enters the momentum: 1 - mu for `ema`, exactly 1 for `sum`.
  float grad_share;
  bool nesterov;
  DecayScalars decay;
};

// M <- mu M + share g in place, g the clipped gradient with `l2` decay of `param`; returns the
// direction, mu M + share g with the updated M for Nesterov, else M ([M1], [M2]).
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
  // By the base lr: the shape's scale never enters it ([M5]).
  DecayScalars decay;
  // lr times the shape's scale.
  float step_size;
};

// Decay, then the update ([M5]).
KAON_HOST_DEVICE float MuonWeight(const MuonWeightScalars& s, float orthogonal, float param) {
  if (Mutated(Mutation::kDecayAfterUpdate)) {
    return DecayedWeight(s.decay, std::fma(-s.step_size, orthogonal, param));
  }
  return std::fma(-s.step_size, orthogonal, DecayedWeight(s.decay, param));
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_MUON_ELEMENTS_H_
