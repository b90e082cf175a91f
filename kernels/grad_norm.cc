#include "kernels/grad_norm.h"

#include <algorithm>

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
  KAON_HOST_DEVICE static double Run(const float* x, int64_t n) {
    double lane[kLanes] = {};
    const int64_t whole = n - n % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        const double value = x[i + j];
        lane[j] += value * value;
      }
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
  uint32_t largest_bits;
};

// Integers only: non-negative floats order as their bits do, and integer sums have no order. NaN
// does not take part in the maximum, infinity does.
struct CountBlock {
  KAON_HOST_DEVICE static BlockCounts Run(const float* x, int64_t n) {
    int32_t zeros = 0;
    int32_t non_finite = 0;
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = BitsOf(x[i]) & 0x7fffffffu;
      zeros += magnitude == 0;
      non_finite += magnitude >= 0x7f800000u;
      const uint32_t candidate = magnitude <= 0x7f800000u ? magnitude : 0;
      largest = candidate > largest ? candidate : largest;
    }
    return {zeros, non_finite, largest};
  }
};

}  // namespace

GradNorm ComputeGradNorm(absl::Span<const float> grad) {
  GradNorm norm;
  norm.num_elements = static_cast<int64_t>(grad.size());
  uint32_t largest_bits = 0;
  for (int64_t begin = 0; begin < norm.num_elements; begin += kNormBlockElements) {
    const float* block = grad.data() + begin;
    const int64_t n = std::min(kNormBlockElements, norm.num_elements - begin);
    norm.sum_squares += RunVectorized<BlockSumSquares>(block, n);
    const BlockCounts counts = RunVectorized<CountBlock>(block, n);
    norm.num_zeros += counts.zeros;
    norm.num_non_finite += counts.non_finite;
    largest_bits = std::max(largest_bits, counts.largest_bits);
  }
  norm.absolute_max = FloatOf(largest_bits);
  return norm;
}

}  // namespace kaon::kernels
