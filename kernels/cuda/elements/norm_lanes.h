// Facts about a block of kNormBlockElements, with the sum of squares in the CPU's order
// (norm_order.h). Device code; the threads of one block.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_
#define KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_

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

// Thread blocks per multiprocessor that registers shall leave room for: while one adds squares, the
// others move memory.
inline constexpr int kNormBlocksAtOnce = 9;

// Values of a block, in shared memory.
class NormLanes {
 public:
  // Keeps the values of a thread; `at` is its first element in the block. Values past the end of
  // the tensor are 0.
  KAON_DEVICE void Keep(const Four<float>& x, int64_t at) {
    *reinterpret_cast<Four<float>*>(values_ + at) = x;
  }

  // Returns the warp of the thread block that sums. It varies: equal warps of all blocks share one
  // of the multiprocessor's four schedulers.
  KAON_DEVICE static unsigned SummingWarp() {
    static_assert(kThreads / 32 == 4);
    return (blockIdx.x * 0x9e3779b1u) >> 30;
  }
  // True in one thread of that warp.
  KAON_DEVICE static bool GetsSum() { return threadIdx.x == 32 * SummingWarp(); }
  // True in one thread of another warp.
  KAON_DEVICE static bool IsFree() { return threadIdx.x == 32 * (SummingWarp() ^ 1); }

  // Sums the squares of the kept values. All threads call it, and it begins with a barrier. The
  // thread of GetsSum() gets the sum; other warps do not wait for it.
  KAON_DEVICE double SumOfSquares() {
    if (!Has(SeededBug::kNormWithoutBarrier)) __syncthreads();
    if (threadIdx.x / 32 != SummingWarp()) return 0.0;
    // Dependent additions take the time. The warp converts the values of the next round meanwhile.
    double sum = 0;
    SquareRound(0);
    for (int round = 0; round < kRounds; ++round) {
      __syncwarp();
      const double* const of_lane = squares_[round % 2][LaneOfWarp() % kNormLanes];
      double x[kSteps];
      KAON_UNROLL
      for (int i = 0; i < kSteps; ++i) x[i] = of_lane[i];
      // The last round squares the first values again.
      SquareRound((round + 1) % kRounds);
      KAON_UNROLL
      for (int i = 0; i < kSteps; ++i) sum += x[i];
    }
    if (LaneOfWarp() < kNormLanes) lane_[LaneOfWarp()] = sum;
    __syncwarp();
    return GetsSum() ? SumOfNormLanes(lane_) : 0.0;
  }

 private:
  // Additions per lane in a round.
  static constexpr int kSteps = 16;
  static constexpr int kRounds = static_cast<int>(kNormBlockElements) / kNormLanes / kSteps;
  static_assert(kSteps * kNormLanes == 4 * 32, "a round is four values per thread of a warp");

  // The squares are exact in fp64.
  KAON_DEVICE void SquareRound(int round) {
    const int lane = LaneOfWarp();
    const auto x = reinterpret_cast<const Four<float>*>(values_)[32 * round + lane];
    for (int i = 0; i < 4; ++i) {
      const double wide = x.of[i];
      squares_[round % 2][4 * (lane % 2) + i][lane / 2] = wide * wide;
    }
  }

  alignas(16) float values_[kNormBlockElements];
  // Padded, so that neither writes nor reads of a warp meet in a bank.
  alignas(16) double squares_[2][kNormLanes][kSteps + 2];
  double lane_[kNormLanes];
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_NORM_LANES_H_
