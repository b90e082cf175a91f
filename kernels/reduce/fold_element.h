// One element of a fold and the order of its sum of squares, for the CPU's loop and for kernels of
// a device. Abseil-free. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_FOLD_ELEMENT_H_
#define KAON_KERNELS_REDUCE_FOLD_ELEMENT_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/dtype.h"
#include "kernels/float_bits.h"
#include "kernels/host_device.h"
#include "kernels/mutation.h"

namespace kaon::kernels {

// Elements per block of the sum of squares.
inline constexpr int64_t kFoldBlock = 1024;

// Lanes of the sum of squares of a block: element i is added to lane i % kFoldLanes. Then lanes at
// half the distance are added until one is left. The lanes fill four of the widest registers, to
// hide the latency of the additions.
inline constexpr int kFoldLanes = 64;

// Smaller sums are computed again in fp64: squares that count may have been rounded to nothing
// there. Each loses up to 2^-150, or 2^-126 if subnormal numbers count as zero.
inline constexpr float kLeastSquares = 0x1p-92f;

// Returns true if the fp32 sum of squares counts.
KAON_HOST_DEVICE bool AreSquaresExactEnough(float squares) {
  return squares >= kLeastSquares && !IsNonFinite(squares);
}

// Returns element i at `src` (unaligned allowed).
template <DType dtype>
KAON_HOST_DEVICE float LoadAs(const std::byte* src, int64_t i) {
  if constexpr (dtype == DType::kFloat32) {
    float x;
    memcpy(&x, src + 4 * i, sizeof(x));
    return x;
  } else {
    uint16_t x;
    memcpy(&x, src + 2 * i, sizeof(x));
    return dtype == DType::kBFloat16 ? BFloat16ToFloat(x) : Float16ToFloat(x);
  }
}

template <bool first>
KAON_HOST_DEVICE float Folded(float weight, float g, float acc) {
  const float sum = first ? weight * g : std::fma(weight, g, acc);
  return Mutated(Mutation::kFoldInFloat16) ? Float16ToFloat(FloatToFloat16(sum)) : sum;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_FOLD_ELEMENT_H_
