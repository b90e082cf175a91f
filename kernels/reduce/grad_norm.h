// Facts about one gradient, in fp64 and in fixed order (numerics.md, formula [C1]). So they are the
// same on any shard, thread count and instruction set. Pure functions; any thread.
#ifndef KAON_KERNELS_REDUCE_GRAD_NORM_H_
#define KAON_KERNELS_REDUCE_GRAD_NORM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/reduce/norm_order.h"

namespace kaon::kernels {

struct GradNorm {
  double sum_squares = 0;
  double absolute_max = 0;
  int64_t num_elements = 0;
  int64_t num_zeros = 0;
  int64_t num_non_finite = 0;
};

// Computes the facts in one pass over `grad`. If an element is not finite, sum_squares is not
// finite.
GradNorm ComputeGradNorm(absl::Span<const float> grad);

// Returns the bits of the largest magnitude. They are at least infinity's if an element is not
// finite.
uint32_t LargestMagnitudeBits(absl::Span<const float> values);

// Facts about one block of at most kNormBlockElements.
struct BlockFacts {
  // Sum of squares; 0 if the caller does not need it.
  double sum_squares = 0;
  int64_t num_zeros = 0;
  // Largest magnitude as bits without the sign. The bits order like the numbers, with NaN above
  // infinity.
  int32_t largest_bits = 0;
};

BlockFacts FactsOf(absl::Span<const float> block, bool takes_sum = true);

// Adds the facts of the next block. Call it in ascending order of blocks.
void AddBlock(const BlockFacts& facts, absl::Span<const float> block, GradNorm& norm);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_GRAD_NORM_H_
