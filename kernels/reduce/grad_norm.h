// Facts about one gradient, in fp64 and in fixed order, so that they are the same on any shard,
// thread count and instruction set (numerics.md [C1]).
// Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_GRAD_NORM_H_
#define KAON_KERNELS_REDUCE_GRAD_NORM_H_

#include <cstdint>

#include "absl/types/span.h"

namespace kaon::kernels {

// Elements per block of the sum of squares: inside a block 8 interleaved fp64 lanes are added
// pairwise at its end; the blocks' sums are added in ascending order.
inline constexpr int64_t kNormBlockElements = 4096;

struct GradNorm {
  double sum_squares = 0;
  double absolute_max = 0;
  int64_t num_elements = 0;
  int64_t num_zeros = 0;
  int64_t num_non_finite = 0;
};

// One pass over `grad`. With non-finite elements sum_squares is itself not finite.
GradNorm ComputeGradNorm(absl::Span<const float> grad);

// Bits of the largest magnitude: infinity's or more where an element is not finite.
uint32_t LargestMagnitudeBits(absl::Span<const float> values);

// What is known of one block, of at most kNormBlockElements.
struct BlockFacts {
  // 0 if nobody asked for it.
  double sum_squares = 0;
  int64_t num_zeros = 0;
  // Of a magnitude, bits without the sign: those of numbers order as they do, those of NaN are
  // above infinity's.
  int32_t largest_bits = 0;
};

BlockFacts FactsOf(absl::Span<const float> block, bool takes_sum = true);

// Adds what is known of the next block; in ascending order of blocks.
void AddBlock(const BlockFacts& facts, absl::Span<const float> block, GradNorm& norm);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_GRAD_NORM_H_
