// Weight decay of every rule (numerics.md, formulas [W1]). It decreases the weight before the
// update, or adds to the gradient before the momentum. Abseil-free, so that a CUDA kernel can
// include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_WEIGHT_DECAY_H_
#define KAON_KERNELS_RULES_WEIGHT_DECAY_H_

#include <cmath>

#include "kernels/host_device.h"

namespace kaon::kernels {

struct DecayScalars {
  // The share of the weight to remove, negated; +0 without decay, which leaves the bits of even a
  // -0 weight unchanged.
  float minus_decay = 0;
  // Factor of the weight in the gradient.
  float l2 = 0;
};

// Computes the scalars from weight_decay, decay_mode and the base rate of a rule. The scale of a
// shape does not affect them.
template <typename ConfigType>
DecayScalars PrepareDecay(const ConfigType& config, double lr) {
  using Mode = decltype(config.decay_mode);
  DecayScalars s;
  switch (config.decay_mode) {
    case Mode::kDecoupled:
      s.minus_decay = static_cast<float>(0.0 - lr * config.weight_decay);
      break;
    case Mode::kIndependent:
      s.minus_decay = static_cast<float>(0.0 - config.weight_decay);
      break;
    case Mode::kL2:
      s.l2 = static_cast<float>(config.weight_decay);
      break;
    case Mode::kPalm:
      s.minus_decay = static_cast<float>(0.0 - config.weight_decay * (lr * lr));
      break;
  }
  return s;
}

// Returns the gradient that enters the momentum, after clipping (rule [C9]).
KAON_HOST_DEVICE float DecayedGradient(const DecayScalars& s, float grad, float param) {
  // Without l2 the gradient keeps its bits: adding 0 would lose the sign of a -0.
  return s.l2 != 0 ? std::fma(s.l2, param, grad) : grad;
}

// Returns the weight to which the update is applied.
KAON_HOST_DEVICE float DecayedWeight(const DecayScalars& s, float param) {
  // p - d p in one rounding: a factor 1 - d would lose most of a small decay.
  return std::fma(s.minus_decay, param, param);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_WEIGHT_DECAY_H_
