// Weight decay of every rule ([W1]): what it takes from the weight before the update, or adds to
// the gradient before the momentum. Abseil-free, so that a CUDA kernel includes it as it stands.
// Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_WEIGHT_DECAY_H_
#define KAON_KERNELS_RULES_WEIGHT_DECAY_H_

#include <cmath>

#include "kernels/host_device.h"

namespace kaon::kernels {

struct DecayScalars {
  // Minus the share of the weight that goes; +0 without it, which leaves even a -0 weight its bits.
  float minus_decay = 0;
  // Factor of the weight in the gradient.
  float l2 = 0;
};

// From a rule's weight_decay and decay_mode and the base rate: the scale of a shape never enters.
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

// The gradient that enters the momentum, after clipping ([C9]).
KAON_HOST_DEVICE float DecayedGradient(const DecayScalars& s, float grad, float param) {
  // Without l2 the gradient keeps its bits: adding 0 would lose the sign of a -0.
  return s.l2 != 0 ? std::fma(s.l2, param, grad) : grad;
}

// The weight from which the update is then taken.
KAON_HOST_DEVICE float DecayedWeight(const DecayScalars& s, float param) {
  // p - d p in one rounding: a factor 1 - d would lose most of a small decay.
  return std::fma(s.minus_decay, param, param);
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_WEIGHT_DECAY_H_
