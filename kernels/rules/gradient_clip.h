// The clip factor of every rule (rule [C5]) as floats. It multiplies the gradient before anything
// else. Abseil-free, so that a CUDA kernel can include it unchanged. Pure functions; any thread.
#ifndef KAON_KERNELS_RULES_GRADIENT_CLIP_H_
#define KAON_KERNELS_RULES_GRADIENT_CLIP_H_

#include "kernels/host_device.h"

namespace kaon::kernels {

struct ClipScalars {
  float factor = 1;
  // A power of two. It is 1 unless the factor alone is too small for fp32's full precision.
  float shift = 1;
};

// Norms of finite gradients reach 1e45, and limits over them 1e-46, which is 0 in fp32.
inline ClipScalars PrepareClip(double clip_factor) {
  constexpr double kSmallestNormal = 0x1p-126;
  if (clip_factor >= kSmallestNormal) return {static_cast<float>(clip_factor), 1.0f};
  return {static_cast<float>(clip_factor / kSmallestNormal), static_cast<float>(kSmallestNormal)};
}

// A factor of 1 leaves the gradient's bits unchanged. The first product is below the gradient, and
// the second is exact. So there is one rounding, as for a factor without a shift.
KAON_HOST_DEVICE float ClippedGradient(const ClipScalars& s, float grad) {
  return (s.factor * grad) * s.shift;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_RULES_GRADIENT_CLIP_H_
