// AdamW, one element at a time: [A1] moments, [A2] eps outside the root, [A3] decoupled decay
// before the update. Everything a backend or a caller needs to know of the rule is declared here;
// Abseil-free, so that a CUDA kernel includes it as it stands. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_ADAMW_H_
#define KAON_KERNELS_RULES_ADAMW_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace kaon::kernels {

struct AdamWConfig;

struct AdamW {
  using Config = AdamWConfig;

  static constexpr const char* kName = "adamw";
  // torch's names, in the order of Element's moments.
  static constexpr const char* kSlots[] = {"exp_avg", "exp_avg_sq"};
  static constexpr int kNumSlots = 2;
  // eps breaks it, and the moments remember old scales (numerics.md 1.4): Adam is clipped.
  static constexpr bool kScaleInvariant = false;

  // What is the same for all elements of one update.
  struct Scalars {
    float clip;
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float inverse_sqrt_c2;
    float eps;
    float step_size;
    // Minus lr times weight decay; +0 without decay, which leaves even a -0 weight its bits.
    float minus_decay;
  };

  // Bias corrections c_i = 1 - beta_i^t in double ([A2]); t from 1.
  template <typename ConfigType>
  static Scalars Prepare(const ConfigType& config, double lr, double clip_factor, int64_t t) {
    const double c1 = 1.0 - std::pow(config.beta1, static_cast<double>(t));
    const double c2 = 1.0 - std::pow(config.beta2, static_cast<double>(t));
    Scalars s;
    s.clip = static_cast<float>(clip_factor);
    s.beta1 = static_cast<float>(config.beta1);
    s.one_minus_beta1 = static_cast<float>(1.0 - config.beta1);
    s.beta2 = static_cast<float>(config.beta2);
    s.one_minus_beta2 = static_cast<float>(1.0 - config.beta2);
    s.inverse_sqrt_c2 = static_cast<float>(1.0 / std::sqrt(c2));
    s.eps = static_cast<float>(config.eps);
    s.step_size = static_cast<float>(lr / c1);
    s.minus_decay = static_cast<float>(0.0 - lr * config.weight_decay);
    return s;
  }

  // The updated parameter; moments are updated in place. A clip of 1 leaves the gradient's bits
  // alone ([C5]).
  KAON_HOST_DEVICE static float Element(const Scalars& s, float grad, float param,
                                        float (&moment)[kNumSlots]) {
    const float g = s.clip * grad;
    const float m = std::fma(s.beta1, moment[0], s.one_minus_beta1 * g);
    const float v = std::fma(s.beta2, moment[1], (s.one_minus_beta2 * g) * g);
    moment[0] = m;
    moment[1] = v;
    // p - (lr wd) p in one rounding: a factor 1 - lr wd would lose most of a small decay.
    const float decayed = std::fma(s.minus_decay, param, param);
    const float denominator = std::fma(std::sqrt(v), s.inverse_sqrt_c2, s.eps);
    return std::fma(-s.step_size, m / denominator, decayed);
  }

  // Calls visit.Fraction, visit.Positive or visit.NonNegative for each hyper-parameter, by its
  // range.
  template <typename ConfigType, typename Visitor>
  static void VisitRanges(const ConfigType& config, Visitor& visit) {
    visit.Fraction("beta1", config.beta1);
    visit.Fraction("beta2", config.beta2);
    visit.Positive("eps", config.eps);
    visit.NonNegative("weight_decay", config.weight_decay);
  }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_ADAMW_H_
