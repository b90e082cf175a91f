// The element-wise halves of Muon on either side of the orthogonalization: momentum and direction
// ([M2], [M3]) before it, decay and weights ([M5]) after it. Abseil-free, so that a CUDA kernel
// includes it as it stands. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_MUON_ELEMENTS_H_
#define KAON_KERNELS_RULES_MUON_ELEMENTS_H_

#include <cmath>

#include "kernels/host_device.h"

namespace kaon::kernels {

struct MuonMomentumScalars {
  float clip;
  float momentum;
  float one_minus_momentum;
  bool nesterov;
};

// M <- mu M + (1 - mu) g in place; returns the direction, mu M + (1 - mu) g with the updated M for
// Nesterov, else M
// ([M2] `ema`).
KAON_HOST_DEVICE float MuonDirection(const MuonMomentumScalars& s, float grad, float& momentum) {
  const float share = s.one_minus_momentum * (s.clip * grad);
  momentum = std::fma(s.momentum, momentum, share);
  const float ahead = std::fma(s.momentum, momentum, share);
  return s.nesterov ? ahead : momentum;
}

struct MuonWeightScalars {
  // Minus lr times weight decay, +0 without it; base lr: the shape's scale never enters it ([M5]).
  float minus_decay;
  // lr times the shape's scale.
  float step_size;
};

// Decay, then the update ([M5]).
KAON_HOST_DEVICE float MuonWeight(const MuonWeightScalars& s, float orthogonal, float param) {
  return std::fma(-s.step_size, orthogonal, std::fma(s.minus_decay, param, param));
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_MUON_ELEMENTS_H_
