#include "kernels/grad_norm.h"

#include <algorithm>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

constexpr int kLanes = 8;
static_assert(kNormBlockElements % kLanes == 0);

// Sum of squares of one block ([C1]). A square of an fp32 value is exact in fp64, so it does not
// matter whether the compiler could have fused; only the order of the additions does, and the lanes
// fix it.
struct BlockSumSquares {
  // Compiled to whatever registers the instruction set has; the lanes are the same 8 on each.
  typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
  typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));

  KAON_HOST_DEVICE static double Run(const float* x, int64_t n) {
    Doubles lane = {};
    const int64_t whole = n - n % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      Floats loaded;
      memcpy(&loaded, x + i, sizeof(loaded));
      const Doubles value = __builtin_convertvector(loaded, Doubles);
      lane += value * value;
    }
    for (int64_t i = whole; i < n; ++i) {
      const double value = x[i];
      lane[i - whole] += value * value;
    }
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
};

struct BlockCounts {
  int32_t zeros;
  int32_t non_finite;
  int32_t largest_bits;
};

constexpr int32_t kInfinityBits = 0x7f800000;

KAON_HOST_DEVICE int32_t MagnitudeBits(float x) {
  return static_cast<int32_t>(BitsOf(x) & 0x7fffffffu);
}

// Integers only: non-negative floats order as their bits do, and integer sums have no order.
struct CountBlock {
  KAON_HOST_DEVICE static BlockCounts Run(const float* x, int64_t n) {
    int32_t zeros = 0;
    int32_t non_finite = 0;
    int32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t magnitude = MagnitudeBits(x[i]);
      zeros += magnitude == 0 ? 1 : 0;
      non_finite += magnitude >= kInfinityBits ? 1 : 0;
      largest = magnitude > largest ? magnitude : largest;
    }
    return {zeros, non_finite, largest};
  }
};

// The maximum without NaN, which is larger than infinity in bits. Rare, so it is a pass of its own.
int32_t LargestBitsWithoutNan(const float* x, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = MagnitudeBits(x[i]);
    if (magnitude <= kInfinityBits) largest = std::max(largest, magnitude);
  }
  return largest;
}

template <bool kSumSquares>
GradNorm Describe(absl::Span<const float> grad) {
  GradNorm norm;
  norm.num_elements = static_cast<int64_t>(grad.size());
  int32_t largest_bits = 0;
  for (int64_t begin = 0; begin < norm.num_elements; begin += kNormBlockElements) {
    const float* block = grad.data() + begin;
    const int64_t n = std::min(kNormBlockElements, norm.num_elements - begin);
    if constexpr (kSumSquares) norm.sum_squares += RunVectorized<BlockSumSquares>(block, n);
    BlockCounts counts = RunVectorized<CountBlock>(block, n);
    if (counts.largest_bits > kInfinityBits) counts.largest_bits = LargestBitsWithoutNan(block, n);
    norm.num_zeros += counts.zeros;
    norm.num_non_finite += counts.non_finite;
    largest_bits = std::max(largest_bits, counts.largest_bits);
  }
  norm.absolute_max = FloatOf(static_cast<uint32_t>(largest_bits));
  return norm;
}

}  // namespace

GradNorm ComputeGradNorm(absl::Span<const float> grad) { return Describe<true>(grad); }

GradNorm CountGradient(absl::Span<const float> grad) { return Describe<false>(grad); }

}  // namespace kaon::kernels
