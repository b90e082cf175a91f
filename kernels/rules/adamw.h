// Adam, one element at a time. Formulas of numerics.md: [A1] moments, [A2] eps outside the root,
// [A3] decay by weight_decay.h (AdamW when decoupled), [A4] amsgrad, [A5] bias correction. Declares
// everything that a backend or a caller needs to know of the rule. Abseil-free, so that a CUDA
// kernel can include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_ADAMW_H_
#define KAON_KERNELS_RULES_ADAMW_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/mutation.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/weight_decay.h"

namespace kaon::kernels {

struct AdamWConfig;

struct AdamW {
  using Config = AdamWConfig;

  static constexpr const char* kName = "adamw";
  // PyTorch's names, in the order of Element's moments.
  static constexpr const char* kSlots[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static constexpr int kMinSlots = 2;
  static constexpr int kMaxSlots = 3;
  // False: eps breaks the invariance, and the moments remember old scales (numerics.md 1.4). So
  // Adam is clipped.
  static constexpr bool kScaleInvariant = false;

  template <typename ConfigType>
  static int NumSlots(const ConfigType& config) {
    return config.amsgrad ? 3 : 2;
  }

  // Values that are equal for all elements of one update.
  struct Scalars {
    ClipScalars clip;
    DecayScalars decay;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float inverse_sqrt_c2;
    float eps;
    float step_size;
  };

  // Bias corrections c_i = 1 - beta_i^t in double (formula [A2]); t from 1.
  template <typename ConfigType>
  static Scalars Prepare(const ConfigType& config, double lr, double clip_factor, int64_t t) {
    using EpsMode = decltype(config.eps_mode);
    const double step =
        static_cast<double>(Mutated(Mutation::kBiasCorrectionOneBehind) && t > 1 ? t - 1 : t);
    const double c1 = config.bias_correction ? 1.0 - std::pow(config.beta1, step) : 1.0;
    const double c2 = config.bias_correction ? 1.0 - std::pow(config.beta2, step) : 1.0;
    // `uncorrected` takes sqrt(c2) out of the denominator, so that eps is added to sqrt(v) itself.
    const bool corrected = config.eps_mode == EpsMode::kOutside;
    Scalars s;
    s.clip = PrepareClip(clip_factor);
    s.decay = PrepareDecay(config, lr);
    s.beta1 = static_cast<float>(config.beta1);
    s.one_minus_beta1 = static_cast<float>(1.0 - config.beta1);
    s.beta2 = static_cast<float>(config.beta2);
    s.one_minus_beta2 = static_cast<float>(1.0 - config.beta2);
    s.inverse_sqrt_c2 = static_cast<float>(corrected ? 1.0 / std::sqrt(c2) : 1.0);
    s.eps = static_cast<float>(config.eps);
    s.step_size = static_cast<float>(corrected ? lr / c1 : lr * std::sqrt(c2) / c1);
    return s;
  }

  // Returns the updated parameter; updates the moments in place. A clip of 1 leaves the gradient's
  // bits unchanged (rule [C5]).
  KAON_HOST_DEVICE static float Element(const Scalars& s, float grad, float param,
                                        float (&moment)[kMaxSlots]) {
    const float g = DecayedGradient(s.decay, ClippedGradient(s.clip, grad), param);
    const float m = std::fma(s.beta1, moment[0], s.one_minus_beta1 * g);
    const float v = std::fma(s.beta2, moment[1], (s.one_minus_beta2 * g) * g);
    // amsgrad: the maximum of the raw moment (formula [A4]). Without the slot this is v itself,
    // which is never below 0.
    const float largest = moment[2] > v ? moment[2] : v;
    moment[0] = m;
    moment[1] = v;
    moment[2] = largest;
    const float denominator = Mutated(Mutation::kEpsInsideRoot)
                                  ? std::sqrt(largest + s.eps) * s.inverse_sqrt_c2
                                  : std::fma(std::sqrt(largest), s.inverse_sqrt_c2, s.eps);
    return std::fma(-s.step_size, m / denominator, DecayedWeight(s.decay, param));
  }

  // Calls visit.Fraction, visit.PositiveFloat or visit.NonNegative for each hyper-parameter,
  // according to its range.
  template <typename ConfigType, typename Visitor>
  static void VisitRanges(const ConfigType& config, Visitor& visit) {
    visit.Fraction("beta1", config.beta1);
    visit.Fraction("beta2", config.beta2);
    visit.PositiveFloat("eps", config.eps);
    visit.NonNegative("weight_decay", config.weight_decay);
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ADAMW_H_
