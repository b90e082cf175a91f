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
  DigestTable digest;
  OfWarps<uint64_t> sums[3];
  OfWarps<uint32_t> largest;
};

// One thread block steps one block of the norm.
__global__ void __launch_bounds__(kThreads)
    MeanKernel(const FinishMeanArguments mean, const bool vector) {
  MeanShared& shared = SharedMemory<MeanShared>();
  FillDigestTable(shared.digest);
  __syncthreads();
  auto* const sums = reinterpret_cast<MeanSums*>(mean.facts);
  auto* const squares = reinterpret_cast<double*>(sums + 1);
  DigestSum digest(shared.digest, mean.key);
  uint32_t largest = 0;
  uint64_t zeros = 0;
  uint64_t non_finite = 0;
  const int64_t begin = int64_t{blockIdx.x} * kNormBlockElements;
  for (int64_t at = 4 * threadIdx.x; at < kNormBlockElements; at += kTurn) {
    const int64_t first = begin + at;
    const int count = NumOfFour(first, mean.num_elements);
    Four<float> x = LoadFour(mean.sum + first, count, vector);
    for (int i = 0; i < 4; ++i) {
      if (i >= count) continue;
      x.of[i] = Divided(mean.loss_scale, Divided(mean.total_weight, x.of[i]));
      zeros += x.of[i] == 0 ? 1 : 0;
      non_finite += IsNonFinite(x.of[i]) ? 1 : 0;
      largest = LargerWithoutNan(largest, x.of[i]);
    }
    StoreFour(x, mean.sum + first, count, vector);
    digest.AddFour(x, count, first);
    if (mean.takes_sum) shared.lanes.Keep(x, at);
  }
  const double sum = mean.takes_sum ? shared.lanes.SumOfSquares() : 0.0;
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
  AddOfBlock(digest.sum(), shared.sums[0], &sums->digest);
  AddOfBlock(zeros, shared.sums[1], &sums->num_zeros);
  AddOfBlock(non_finite, shared.sums[2], &sums->num_non_finite);
  RaiseByBlock(largest, shared.largest, &sums->largest_bits);
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
