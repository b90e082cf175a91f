// Stochastic gradient descent with momentum, one element at a time (numerics.md, formula [G1]).
// Declares everything that a backend or a caller needs to know of the rule. Abseil-free, so that a
// CUDA kernel can include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_SGD_H_
#define KAON_KERNELS_RULES_SGD_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/weight_decay.h"

namespace kaon::kernels {

struct SgdConfig;

struct Sgd {
  using Config = SgdConfig;

  static constexpr const char* kName = "sgd";
  // PyTorch's name.
  static constexpr const char* kSlots[] = {"momentum_buffer"};
  static constexpr int kMinSlots = 0;
  static constexpr int kMaxSlots = 1;
  // False: the update is as large as the gradient. So SGD is clipped.
  static constexpr bool kScaleInvariant = false;

  template <typename ConfigType>
  static int NumSlots(const ConfigType& config) {
    return config.momentum > 0 ? 1 : 0;
  }

  // Values that are equal for all elements of one update.
  struct Scalars {
    ClipScalars clip;
    DecayScalars decay;
    // Factors of the buffer and of the gradient in the new buffer.
    float momentum;
    float share;
    // Factors of the new buffer and of the gradient in the update.
    float buffer_weight;
    float grad_weight;
    float lr;
  };

  // `t` starts at 1. The first update sets the buffer to the gradient, without dampening.
  template <typename ConfigType>
  static Scalars Prepare(const ConfigType& config, double lr, double clip_factor, int64_t t) {
    const bool first = t == 1 || NumSlots(config) == 0;
    Scalars s;
    s.clip = PrepareClip(clip_factor);
    s.decay = PrepareDecay(config, lr);
    s.momentum = static_cast<float>(first ? 0.0 : config.momentum);
    s.share = static_cast<float>(first ? 1.0 : 1.0 - config.dampening);
    s.buffer_weight = static_cast<float>(config.nesterov ? config.momentum : 1.0);
    s.grad_weight = config.nesterov ? 1.0f : 0.0f;
    s.lr = static_cast<float>(lr);
    return s;
  }

  // Returns the updated parameter; updates the buffer in place. A clip of 1 leaves the gradient's
  // bits unchanged (rule [C5]).
  KAON_HOST_DEVICE static float Element(const Scalars& s, float grad, float param,
                                        float (&state)[kMaxSlots]) {
    const float g = DecayedGradient(s.decay, ClippedGradient(s.clip, grad), param);
    const float buffer = std::fma(s.momentum, state[0], s.share * g);
    state[0] = buffer;
    const float direction = std::fma(s.buffer_weight, buffer, s.grad_weight * g);
    return std::fma(-s.lr, direction, DecayedWeight(s.decay, param));
  }

  // Calls visit.Fraction, visit.AtMostOne, visit.NonNegative or visit.Requires for each
  // hyper-parameter, according to its range.
  template <typename ConfigType, typename Visitor>
  static void VisitRanges(const ConfigType& config, Visitor& visit) {
    visit.Fraction("momentum", config.momentum);
    visit.AtMostOne("dampening", config.dampening);
    visit.NonNegative("weight_decay", config.weight_decay);
    visit.Requires("nesterov", !config.nesterov || config.momentum > 0, "momentum", config.momentum,
                   "> 0");
    visit.Requires("nesterov", !config.nesterov || config.dampening == 0, "dampening",
                   config.dampening, "0");
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_SGD_H_
