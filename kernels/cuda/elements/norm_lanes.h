// Facts about a block of kNormBlockElements, with the sum of squares in the CPU's order
// (norm_order.h). Device code; the threads of one block.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_
#define KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/reduce/norm_order.h"

namespace kaon::kernels::cuda {

inline constexpr uint32_t kInfinityBits = 0x7f800000u;

// Returns the larger of `largest` and the bits of |x|. NaN counts as 0.
KAON_DEVICE uint32_t LargerWithoutNan(uint32_t largest, float x) {
  const uint32_t magnitude = BitsOf(x) & 0x7fffffffu;
  const bool counts = Has(SeededBug::kNanInLargest) || magnitude <= kInfinityBits;
  return counts && magnitude > largest ? magnitude : largest;
}

// Values of a block, in shared memory.
struct NormLanes {
  // 0 past the end of the block.
  alignas(16) float values[kNormBlockElements];
  double lane[kNormLanes];

  // Keeps the values of a thread; `at` is its first element in the block.
  KAON_DEVICE void Keep(const Four<float>& x, int64_t at) {
    *reinterpret_cast<Four<float>*>(values + at) = x;
  }

  // Sums the squares of the kept values. All threads call it; thread 0 gets the sum. A sequence of
  // dependent additions per lane: concurrent thread blocks hide its latency.
  KAON_DEVICE double SumOfSquares() {
    if (!Has(SeededBug::kNormWithoutBarrier)) __syncthreads();
    if (threadIdx.x < kNormLanes) {
      double sum = 0;
      for (int64_t at = threadIdx.x; at < kNormBlockElements; at += kNormLanes) {
        // The square is exact in fp64, so fusing changes nothing.
        const double x = values[at];
        sum = std::fma(x, x, sum);
      }
      lane[threadIdx.x] = sum;
    }
    __syncwarp();
    return threadIdx.x == 0 ? SumOfNormLanes(lane) : 0.0;
  }
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_
