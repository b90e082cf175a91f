// What is known of one block of a gradient ([C1]), taken from registers while the block is read or
// written: the loops of grad_norm.cc and mean.cc are this and what they do besides. For
// RunVectorized. Pure functions and values; any thread.
#ifndef KAON_KERNELS_BLOCK_FACTS_H_
#define KAON_KERNELS_BLOCK_FACTS_H_

#include <cstdint>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"

namespace kaon::kernels {

// Magnitudes are bits without the sign: non-negative floats order as their bits do.
inline constexpr int32_t kInfinityBits = 0x7f800000;

KAON_HOST_DEVICE int32_t MagnitudeBits(float x) {
  return static_cast<int32_t>(BitsOf(x) & 0x7fffffffu);
}

struct BlockFacts {
  double sum_squares = 0;
  int64_t num_zeros = 0;
  // Over kInfinityBits if there is a NaN.
  int32_t largest_bits = 0;
};

// Compiled to whatever registers the instruction set has; the lanes are the same on each. A square
// of an fp32 value is exact in fp64, so it does not matter whether the compiler could have fused;
// only the order of the additions does, and the 8 lanes of the sum fix it.
class BlockScan {
 public:
  static constexpr int kWidth = 16;
  typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));

  // Elements i .. i + kWidth - 1 of the block, i a multiple of kWidth, in ascending order.
  template <bool takes_sum>
  KAON_HOST_DEVICE void AddWhole(const Floats& x) {
    Ints magnitude;
    memcpy(&magnitude, &x, sizeof(magnitude));
    magnitude &= 0x7fffffff;
    zeros_ -= magnitude == 0;
    largest_ = magnitude > largest_ ? magnitude : largest_;
    if constexpr (takes_sum) {
      HalfFloats half[2];
      memcpy(&half, &x, sizeof(half));
      const Doubles low = __builtin_convertvector(half[0], Doubles);
      sum_ += low * low;
      const Doubles high = __builtin_convertvector(half[1], Doubles);
      sum_ += high * high;
    }
  }

  // Element i of the block, after all whole ones before it.
  template <bool takes_sum>
  KAON_HOST_DEVICE void AddOne(float x, int64_t i) {
    const int32_t magnitude = MagnitudeBits(x);
    const int64_t lane = i % kWidth;
    zeros_[lane] += magnitude == 0 ? 1 : 0;
    largest_[lane] = magnitude > largest_[lane] ? magnitude : largest_[lane];
    if constexpr (takes_sum) {
      const double value = x;
      sum_[lane % kSumLanes] += value * value;
    }
  }

  KAON_HOST_DEVICE BlockFacts Facts() const {
    BlockFacts facts;
    facts.sum_squares =
        ((sum_[0] + sum_[1]) + (sum_[2] + sum_[3])) + ((sum_[4] + sum_[5]) + (sum_[6] + sum_[7]));
    for (int lane = 0; lane < kWidth; ++lane) {
      facts.num_zeros += zeros_[lane];
      if (largest_[lane] > facts.largest_bits) facts.largest_bits = largest_[lane];
    }
    return facts;
  }

 private:
  static constexpr int kSumLanes = 8;
  typedef int32_t Ints __attribute__((vector_size(kWidth * sizeof(int32_t))));
  typedef float HalfFloats __attribute__((vector_size(kSumLanes * sizeof(float))));
  typedef double Doubles __attribute__((vector_size(kSumLanes * sizeof(double))));

  Doubles sum_ = {};
  Ints zeros_ = {};
  Ints largest_ = {};
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_BLOCK_FACTS_H_
