#include "kernels/reduce/grad_norm.h"

#include <algorithm>
#include <cstring>

#include "kernels/float_bits.h"
#include "kernels/host_device.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

constexpr int32_t kInfinityBits = 0x7f800000;

int32_t MagnitudeBits(float x) { return static_cast<int32_t>(BitsOf(x) & 0x7fffffffu); }

// Types of a register of kBytes. They are spelled out, because GCC 12 drops attributes that depend
// on a template parameter.
template <int kBytes>
struct Register;

template <>
struct Register<16> {
  typedef float HalfFloats __attribute__((vector_size(8)));
  typedef int32_t Ints __attribute__((vector_size(16)));
  typedef double Doubles __attribute__((vector_size(16)));
};

template <>
struct Register<32> {
  typedef float HalfFloats __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(32)));
  typedef double Doubles __attribute__((vector_size(32)));
};

template <>
struct Register<64> {
  typedef float HalfFloats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(64)));
  typedef double Doubles __attribute__((vector_size(64)));
};

// Written in registers of kBytes, so that each instruction set uses its own (RunInRegisters). GCC
// splits wider registers, and comparisons element by element. The lanes are the same in any width.
// A square of an fp32 value is exact in fp64, so fusing by the compiler does not matter. Only the
// order of the additions matters, and the 8 lanes of the sum fix it.
template <int kBytes>
class BlockScan {
 public:
  static constexpr int kWidth = 16;

  // Adds elements i .. i + kWidth - 1 of the block, in ascending order; i is a multiple of kWidth.
  template <bool takes_sum>
  KAON_HOST_DEVICE void AddWhole(const float* x) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const float* const from = x + part * kInts;
      Ints magnitude;
      memcpy(&magnitude, from, sizeof(magnitude));
      magnitude &= 0x7fffffff;
      // The shift gives -1 for 0 alone, because magnitudes are not negative.
      zeros_[part] -= (magnitude - 1) >> 31;
      largest_[part] = magnitude > largest_[part] ? magnitude : largest_[part];
      if constexpr (takes_sum) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          HalfFloats floats;
          memcpy(&floats, from + half * kDoubles, sizeof(floats));
          const Doubles wide = __builtin_convertvector(floats, Doubles);
          sum_[(2 * part + half) % kParts] += wide * wide;
        }
      }
    }
  }

  // Adds the last n < kWidth elements of the block.
  template <bool takes_sum>
  KAON_HOST_DEVICE void AddRest(const float* x, int64_t n) {
    if (n == 0) return;
    float filled[kWidth] = {};
    memcpy(filled, x, n * sizeof(float));
    AddWhole<takes_sum>(filled);
    num_filled_ += kWidth - n;
  }

  KAON_HOST_DEVICE BlockFacts Facts() const {
    double sum[kNormLanes];
    int32_t zeros[kWidth];
    int32_t largest[kWidth];
    memcpy(&sum, &sum_, sizeof(sum));
    memcpy(&zeros, &zeros_, sizeof(zeros));
    memcpy(&largest, &largest_, sizeof(largest));
    BlockFacts facts;
    facts.sum_squares = SumOfNormLanes(sum);
    facts.num_zeros = -num_filled_;
    for (int lane = 0; lane < kWidth; ++lane) {
      facts.num_zeros += zeros[lane];
      if (largest[lane] > facts.largest_bits) facts.largest_bits = largest[lane];
    }
    return facts;
  }

 private:
  // Number of registers that hold kWidth floats, and of those that hold half as many doubles.
  static constexpr int kParts = kWidth * static_cast<int>(sizeof(float)) / kBytes;
  static constexpr int kInts = kBytes / static_cast<int>(sizeof(int32_t));
  static constexpr int kDoubles = kBytes / static_cast<int>(sizeof(double));
  using Ints = typename Register<kBytes>::Ints;
  using HalfFloats = typename Register<kBytes>::HalfFloats;
  using Doubles = typename Register<kBytes>::Doubles;

  Doubles sum_[kParts] = {};
  Ints zeros_[kParts] = {};
  Ints largest_[kParts] = {};
  // Number of zeros that pad the last elements.
  int64_t num_filled_ = 0;
};

template <bool takes_sum>
struct DescribeBlock {
  template <int kBytes>
  struct In {
    using Scan = BlockScan<kBytes>;
    static_assert(kNormBlockElements % Scan::kWidth == 0);

    KAON_HOST_DEVICE static BlockFacts Run(const float* x, int64_t n) {
      Scan scan;
      int64_t i = 0;
      for (; i + Scan::kWidth <= n; i += Scan::kWidth) scan.template AddWhole<takes_sum>(x + i);
      scan.template AddRest<takes_sum>(x + i, n - i);
      return scan.Facts();
    }
  };
};

}  // namespace

BlockFacts FactsOf(absl::Span<const float> block, bool takes_sum) {
  const auto n = static_cast<int64_t>(block.size());
  return takes_sum ? RunInRegisters<DescribeBlock<true>::In>(block.data(), n)
                   : RunInRegisters<DescribeBlock<false>::In>(block.data(), n);
}

uint32_t LargestMagnitudeBits(absl::Span<const float> values) {
  int32_t largest = 0;
  for (size_t begin = 0; begin < values.size(); begin += kNormBlockElements) {
    const absl::Span<const float> block = values.subspan(begin, kNormBlockElements);
    largest = std::max(largest, FactsOf(block, /*takes_sum=*/false).largest_bits);
  }
  return static_cast<uint32_t>(largest);
}

void AddBlock(const BlockFacts& facts, absl::Span<const float> block, GradNorm& norm) {
  norm.num_elements += static_cast<int64_t>(block.size());
  norm.sum_squares += facts.sum_squares;
  norm.num_zeros += facts.num_zeros;
  int32_t largest = facts.largest_bits;
  // Rare, so a separate pass: counts the non-finite elements, and finds the maximum without NaN,
  // whose bits are larger than infinity's.
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
    AddBlock(FactsOf(block), block, norm);
  }
  return norm;
}

}  // namespace kaon::kernels
