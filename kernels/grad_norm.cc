#include "kernels/grad_norm.h"

#include <algorithm>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

static_assert(kNormBlockElements % BlockScan::kWidth == 0);

struct DescribeBlock {
  KAON_HOST_DEVICE static BlockFacts Run(const float* x, int64_t n) {
    BlockScan scan;
    int64_t i = 0;
    for (; i + BlockScan::kWidth <= n; i += BlockScan::kWidth) {
      BlockScan::Floats loaded;
      memcpy(&loaded, x + i, sizeof(loaded));
      scan.AddWhole<true>(loaded);
    }
    for (; i < n; ++i) scan.AddOne<true>(x[i], i);
    return scan.Facts();
  }
};

}  // namespace

void AddBlock(const BlockFacts& facts, absl::Span<const float> block, GradNorm& norm) {
  norm.num_elements += static_cast<int64_t>(block.size());
  norm.sum_squares += facts.sum_squares;
  norm.num_zeros += facts.num_zeros;
  int32_t largest = facts.largest_bits;
  // Rare, so it is a pass of its own: how many are not finite, and the maximum without NaN, which
  // is larger than infinity in bits.
  if (largest >= kInfinityBits) {
    largest = 0;
    for (const float x : block) {
      const int32_t magnitude = MagnitudeBits(x);
      if (magnitude >= kInfinityBits) ++norm.num_non_finite;
      if (magnitude <= kInfinityBits) largest = std::max(largest, magnitude);
    }
  }
  norm.absolute_max = std::max<double>(norm.absolute_max, FloatOf(static_cast<uint32_t>(largest)));
}

GradNorm ComputeGradNorm(absl::Span<const float> grad) {
  GradNorm norm;
  for (size_t begin = 0; begin < grad.size(); begin += kNormBlockElements) {
    const absl::Span<const float> block = grad.subspan(begin, kNormBlockElements);
    AddBlock(RunVectorized<DescribeBlock>(block.data(), static_cast<int64_t>(block.size())), block,
             norm);
  }
  return norm;
}

}  // namespace kaon::kernels
