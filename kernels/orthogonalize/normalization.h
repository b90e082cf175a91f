// Normalization of a matrix before Newton-Schulz (rule [N5]), for the CPU and for kernels of a
// device. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NORMALIZATION_H_
#define KAON_KERNELS_ORTHOGONALIZE_NORMALIZATION_H_

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/mutation.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

// Options of the normalization.
struct NormalizationOptions {
  NormMode norm_mode = NormMode::kScaleInvariant;
  double norm_eps = 1e-7;
  // NewtonSchulzCoefficientSet::safety_factor.
  double safety_factor = 1;
};

// Divisors of the normalization; the first is the largest element in kScaleInvariant.
struct Normalization {
  float scale = 1;
  float norm = 1;
};

// `sum_squares` and `absolute_max` are those of the matrix, which is not zero.
KAON_HOST_DEVICE Normalization NormalizationOf(const NormalizationOptions& options,
                                               double sum_squares, double absolute_max) {
  if (Mutated(Mutation::kNotNormalised)) return {1, 1};
  const double safety_factor = Mutated(Mutation::kSafetyFactorMissing) ? 1 : options.safety_factor;
  const double whole = safety_factor * std::sqrt(sum_squares);
  const float rounded = static_cast<float>(whole);
  const float eps = static_cast<float>(options.norm_eps);
  switch (options.norm_mode) {
    case NormMode::kAddEps:
      return {1, rounded + eps};
    case NormMode::kClampEps:
      return {1, rounded < eps ? eps : rounded};
    case NormMode::kScaleInvariant:
      break;
  }
  return {static_cast<float>(absolute_max), static_cast<float>(whole / absolute_max)};
}

KAON_HOST_DEVICE float Normalized(const Normalization& normalization, float x) {
  return (x / normalization.scale) / normalization.norm;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NORMALIZATION_H_
