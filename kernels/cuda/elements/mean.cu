#include <cstring>

#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/mean.h"
#include "kernels/cuda/elements/norm_lanes.h"
#include "kernels/cuda/launch.h"

namespace kaon::kernels::cuda {
namespace {

int64_t NumBlocks(int64_t num_elements) {
  return (num_elements + kNormBlockElements - 1) / kNormBlockElements;
}

struct MeanShared {
  NormLanes lanes;
  DigestKeys keys;
  OfWarps<uint64_t> digest;
  OfWarps<uint32_t> counts;
  OfWarps<uint32_t> largest;
};

// Facts about the elements of one thread.
class MeanCounts {
 public:
  KAON_DEVICE void Add(const Four<float>& x, int count) {
    uint32_t largest = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t magnitude = BitsOf(x.of[i]) & 0x7fffffffu;
      zeros_ += i < count && magnitude == 0 ? 1 : 0;
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest < kInfinityBits) {
      largest_ = largest > largest_ ? largest : largest_;
      return;
    }
    for (const float value : x.of) {
      non_finite_ += IsNonFinite(value) ? 1 : 0;
      largest_ = LargerWithoutNan(largest_, value);
    }
  }

  // Both numbers of a norm block fit in 16 bits.
  KAON_DEVICE uint32_t packed() const { return zeros_ | non_finite_ << 16; }
  KAON_DEVICE uint32_t largest() const { return largest_; }

 private:
  uint32_t zeros_ = 0;
  uint32_t non_finite_ = 0;
  uint32_t largest_ = 0;
};

KAON_DEVICE void Divide(const Division& division, Four<float>& x, int count) {
  for (int i = 0; i < 4; ++i) {
    if (i < count) x.of[i] = Divided(division, x.of[i]);
  }
}

// Steps the elements of one thread in a norm block. `whole`: all of them exist and are aligned.
template <bool whole>
KAON_DEVICE void StepElements(const FinishMeanArguments& mean, bool vector, MeanShared& shared,
                              DigestSum& digest, MeanCounts& counts) {
  constexpr int kAhead = 4;
  const int64_t begin = int64_t{blockIdx.x} * kNormBlockElements + 4 * threadIdx.x;
  float* const sum = mean.sum + begin;
  const auto multipliers = MultipliersAt<4>(kDigestTable, 4 * threadIdx.x);
  static_assert(kTurn == kDigestBlock, "a thread's words are at one place of every digest block");
  // Loads cannot pass stores to memory that may be the same, so several turns load first.
  for (int at = 0; at < kNormBlockElements; at += kAhead * static_cast<int>(kTurn)) {
    Four<float> x[kAhead];
    int count[kAhead];
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int turn = at + k * static_cast<int>(kTurn);
      count[k] = whole ? 4 : NumOfFour(begin + turn, mean.num_elements);
      x[k] = LoadFour(sum + turn, count[k], whole || vector);
    }
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) Divide(mean.total_weight, x[k], count[k]);
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) Divide(mean.loss_scale, x[k], count[k]);
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int turn = at + k * static_cast<int>(kTurn);
      StoreFour(x[k], sum + turn, count[k], whole || vector);
      counts.Add(x[k], count[k]);
      digest.Add(WordsOf(x[k]).of, count[k], multipliers, shared.keys.of[turn / kDigestBlock]);
      shared.lanes.Keep(x[k], 4 * threadIdx.x + turn);
    }
  }
}

// One thread block steps one block of the norm.
__global__ void __launch_bounds__(kThreads, kNormBlocksAtOnce)
    MeanKernel(const FinishMeanArguments mean, const bool vector) {
  MeanShared& shared = SharedMemory<MeanShared>();
  const int64_t begin = int64_t{blockIdx.x} * kNormBlockElements;
  shared.keys.Fill(mean.key, begin);
  __syncthreads();
  DigestSum digest(kDigestTable, mean.key);
  MeanCounts counts;
  if (vector && begin + kNormBlockElements <= mean.num_elements) {
    StepElements<true>(mean, vector, shared, digest, counts);
  } else {
    StepElements<false>(mean, vector, shared, digest, counts);
  }
  AddInWarps(digest.sum(), shared.digest);
  AddInWarps(counts.packed(), shared.counts);
  RaiseInWarps(counts.largest(), shared.largest);
  auto* const sums = reinterpret_cast<MeanSums*>(mean.facts);
  if (mean.takes_sum) {
    const double sum = shared.lanes.SumOfSquares();
    if (NormLanes::GetsSum()) reinterpret_cast<double*>(sums + 1)[blockIdx.x] = sum;
  } else {
    __syncthreads();
    if (threadIdx.x == 0) reinterpret_cast<double*>(sums + 1)[blockIdx.x] = 0;
  }
  if (!NormLanes::IsFree()) return;
  const uint32_t both = SumOfWarps(shared.counts);
  AtomicAdd(&sums->digest, SumOfWarps(shared.digest));
  AtomicAdd(&sums->num_zeros, both & 0xffff);
  AtomicAdd(&sums->num_non_finite, both >> 16);
  atomicMax(&sums->largest_bits, LargestOfWarps(shared.largest));
}

}  // namespace

int64_t MeanFactsBytes(int64_t num_elements) {
  return static_cast<int64_t>(sizeof(MeanSums)) +
         NumBlocks(num_elements) * static_cast<int64_t>(sizeof(double));
}

void FinishMean(Stream& stream, const FinishMeanArguments& mean) {
  stream.SetZero(mean.facts, sizeof(MeanSums));
  Launch(stream, {NumBlocks(mean.num_elements), kThreads}, MeanKernel, mean,
         IsVectorAligned(mean.sum));
}

GradNorm NormOfFacts(const std::byte* facts, int64_t num_elements) {
  MeanSums sums;
  memcpy(&sums, facts, sizeof(sums));
  GradNorm norm;
  norm.absolute_max = FloatOf(sums.largest_bits);
  norm.num_elements = num_elements;
  norm.num_zeros = static_cast<int64_t>(sums.num_zeros);
  norm.num_non_finite = static_cast<int64_t>(sums.num_non_finite);
  for (int64_t block = 0; block < NumBlocks(num_elements); ++block) {
    double squares;
    memcpy(&squares, facts + sizeof(sums) + block * sizeof(squares), sizeof(squares));
    norm.sum_squares += squares;
  }
  return norm;
}

}  // namespace kaon::kernels::cuda
