// Lion, one element at a time: the sign of interpolated momentum (numerics.md, formula [G2]).
// Declares everything that a backend or a caller needs to know of the rule. Abseil-free, so that a
// CUDA kernel can include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_LION_H_
#define KAON_KERNELS_RULES_LION_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/mutation.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/weight_decay.h"

namespace kaon::kernels {

struct LionConfig;

struct Lion {
  using Config = LionConfig;

  static constexpr const char* kName = "lion";
  static constexpr const char* kSlots[] = {"exp_avg"};
  static constexpr int kMinSlots = 1;
  static constexpr int kMaxSlots = 1;
  // False: each step has one size, but the momentum remembers old scales (numerics.md 1.4). So Lion
  // is clipped.
  static constexpr bool kScaleInvariant = false;

  template <typename ConfigType>
  static int NumSlots(const ConfigType&) {
    return 1;
  }

  // Values that are equal for all elements of one update.
  struct Scalars {
    ClipScalars clip;
    DecayScalars decay;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float lr;
  };

  template <typename ConfigType>
  static Scalars Prepare(const ConfigType& config, double lr, double clip_factor, int64_t) {
    Scalars s;
    s.clip = PrepareClip(clip_factor);
    s.decay = PrepareDecay(config, lr);
    s.beta1 = static_cast<float>(config.beta1);
    s.one_minus_beta1 = static_cast<float>(1.0 - config.beta1);
    s.beta2 = static_cast<float>(config.beta2);
    s.one_minus_beta2 = static_cast<float>(1.0 - config.beta2);
    s.lr = static_cast<float>(lr);
    return s;
  }

  // Returns the updated parameter; updates the momentum in place after its use. A clip of 1 leaves
  // the gradient's bits unchanged (rule [C5]).
  KAON_HOST_DEVICE static float Element(const Scalars& s, float grad, float param,
                                        float (&state)[kMaxSlots]) {
    const float g = DecayedGradient(s.decay, ClippedGradient(s.clip, grad), param);
    const float before = state[0];
    state[0] = std::fma(s.beta2, before, s.one_minus_beta2 * g);
    const float mixed =
        std::fma(s.beta1, Mutated(Mutation::kLionUsesNewMomentum) ? state[0] : before,
                 s.one_minus_beta1 * g);
    // 0 has no sign, as in the paper: a parameter without gradients does not move.
    const float sign = mixed > 0 ? 1.0f : (mixed < 0 ? -1.0f : 0.0f);
    return std::fma(-s.lr, sign, DecayedWeight(s.decay, param));
  }

  // Calls visit.Fraction or visit.NonNegative for each hyper-parameter, according to its range.
  template <typename ConfigType, typename Visitor>
  static void VisitRanges(const ConfigType& config, Visitor& visit) {
    visit.Fraction("beta1", config.beta1);
    visit.Fraction("beta2", config.beta2);
    visit.NonNegative("weight_decay", config.weight_decay);
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_LION_H_
