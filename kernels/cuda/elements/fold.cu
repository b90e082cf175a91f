#include <cmath>

#include "kernels/cuda/elements/fold.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/reduce/fold_element.h"

namespace kaon::kernels::cuda {
namespace {

// One warp folds one block, so that no other warp is waited for.
constexpr int64_t kBlock = kFoldBlock;
constexpr int kWarps = kThreads / 32;

template <DType dtype>
using Stored = std::conditional_t<dtype == DType::kFloat32, float, uint16_t>;

// The elements that 16 bytes hold.
template <DType dtype>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(Stored<dtype>);
  Stored<dtype> of[kSize];
};

template <DType dtype>
KAON_DEVICE float Widened(Stored<dtype> x) {
  return LoadAs<dtype>(reinterpret_cast<const std::byte*>(&x), 0);
}

// Folds the whole vectors of a block and leaves its values in `values`.
template <DType dtype, bool first>
KAON_DEVICE void FoldVectors(const FoldChunkArguments& chunk, int64_t begin, float* values) {
  constexpr int kSize = Vector<dtype>::kSize;
  constexpr int kStep = 32 * kSize;
  // A chunk of 1 MiB has few warps per multiprocessor, so each loads much before it stores.
  constexpr int kAhead = first || kSize == 4 ? 4 : 2;
  const auto* const from = static_cast<const Stored<dtype>*>(chunk.from) + begin;
  float* const sum = chunk.sum + begin;
  for (int64_t at = LaneOfWarp() * kSize; at < kBlock; at += kAhead * kStep) {
    Vector<dtype> added[kAhead];
    Four<float> old[kAhead][kSize / 4];
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      added[k] = *reinterpret_cast<const Vector<dtype>*>(from + at + k * kStep);
      for (int part = 0; part < kSize / 4; ++part) {
        old[k][part] = {};
        if (first) continue;
        old[k][part] = *reinterpret_cast<const Four<float>*>(sum + at + k * kStep + 4 * part);
      }
    }
    // Otherwise the compiler moves loads behind stores to save registers.
    __syncwarp();
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      for (int part = 0; part < kSize / 4; ++part) {
        const int64_t to = at + k * kStep + 4 * part;
        Four<float> wide;
        Four<float> folded;
        for (int i = 0; i < 4; ++i) {
          wide.of[i] = Widened<dtype>(added[k].of[4 * part + i]);
          folded.of[i] = Folded<first>(chunk.weight, wide.of[i], old[k][part].of[i]);
        }
        *reinterpret_cast<Four<float>*>(sum + to) = folded;
        *reinterpret_cast<Four<float>*>(values + to) = wide;
      }
    }
  }
}

// Same for `count` elements at any alignment; zeros follow them in `values`.
template <DType dtype, bool first>
KAON_DEVICE void FoldEach(const FoldChunkArguments& chunk, int64_t begin, int64_t count,
                          float* values) {
  const auto* const from = static_cast<const std::byte*>(chunk.from);
  for (int64_t at = LaneOfWarp(); at < kBlock; at += 32) {
    const int64_t i = begin + at;
    const float g = at < count ? LoadAs<dtype>(from, i) : 0.0f;
    if (at < count) chunk.sum[i] = Folded<first>(chunk.weight, g, first ? 0.0f : chunk.sum[i]);
    values[at] = g;
  }
}

// Returns the fp32 sum of squares, in every thread of the warp.
KAON_DEVICE float SquaresOf(const float* values) {
  // Each thread has the lanes that the first step of the tree adds.
  const int lane = LaneOfWarp();
  const bool neighbours = Has(SeededBug::kFoldLanesInOtherOrder);
  const int low = neighbours ? 2 * lane : lane;
  const int high = neighbours ? low + 1 : low + kFoldLanes / 2;
  float sum_low = 0;
  float sum_high = 0;
  for (int64_t row = 0; row < kBlock; row += kFoldLanes) {
    sum_low = std::fma(values[row + low], values[row + low], sum_low);
    sum_high = std::fma(values[row + high], values[row + high], sum_high);
  }
  float sum = sum_low + sum_high;
  for (unsigned delta = kFoldLanes / 4; delta > 0; delta /= 2) {
    sum += __shfl_down_sync(kWholeWarp, sum, delta);
  }
  return __shfl_sync(kWholeWarp, sum, 0);
}

// Returns the sum in fp64 in one thread. Zeros are frequent, other values are not.
KAON_DEVICE double WideSquaresOf(const float* values, int64_t count, FoldSums* facts) {
  uint32_t bits = 0;
  for (int64_t at = LaneOfWarp(); at < count; at += 32) bits |= BitsOf(values[at]) << 1;
  for (int mask = 16; mask > 0; mask /= 2) bits |= __shfl_xor_sync(kWholeWarp, bits, mask);
  if (bits == 0 || LaneOfWarp() != 0) return 0;
  double sum = 0;
  for (int64_t at = 0; at < count; ++at) {
    const double g = values[at];
    sum += g * g;
    if (IsNonFinite(values[at])) atomicMax(&facts->non_finite, 1u);
  }
  return sum;
}

template <DType dtype, bool first>
__global__ void __launch_bounds__(kThreads)
    FoldKernel(const FoldChunkArguments chunk, const bool vector) {
  struct Shared {
    alignas(16) float values[kWarps][kBlock];
  };
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* const values = SharedMemory<Shared>().values[warp];
  const int64_t block = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t begin = block * kBlock;
  if (begin >= chunk.num_elements) return;
  const int64_t left = chunk.num_elements - begin;
  const int64_t count = left < kBlock ? left : kBlock;
  if (vector && count == kBlock) {
    FoldVectors<dtype, first>(chunk, begin, values);
  } else {
    FoldEach<dtype, first>(chunk, begin, count, values);
  }
  __syncwarp();
  const float squares = SquaresOf(values);
  const bool exact = AreSquaresExactEnough(squares) || Has(SeededBug::kSquaresNotWidened);
  const double wide = exact ? squares : WideSquaresOf(values, count, chunk.facts);
  if (LaneOfWarp() == 0) chunk.block_squares[block] = wide;
}

// Adds the squares of the blocks in ascending order.
__global__ void __launch_bounds__(kThreads)
    AddSquaresKernel(const double* block_squares, const int64_t num_blocks, FoldSums* facts) {
  constexpr int64_t kAtOnce = 512;
  struct Shared {
    alignas(16) double squares[kAtOnce];
  };
  double* const squares = SharedMemory<Shared>().squares;
  double sum = facts->sum_squares;
  for (int64_t begin = 0; begin < num_blocks; begin += kAtOnce) {
    const int count = static_cast<int>(num_blocks - begin < kAtOnce ? num_blocks - begin : kAtOnce);
    const int padded = (count + kSumAhead - 1) / kSumAhead * kSumAhead;
    for (int i = static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
      squares[i] = i < count ? block_squares[begin + i] : 0.0;
    }
    __syncthreads();
    if (threadIdx.x == 0) sum = SumInOrder(sum, squares, padded);
    __syncthreads();
  }
  if (threadIdx.x == 0) facts->sum_squares = sum;
}

template <DType dtype>
void FoldAs(Stream& stream, const FoldChunkArguments& chunk) {
  const bool vector = IsVectorAligned(chunk.from) && IsVectorAligned(chunk.sum);
  const LaunchShape shape = {(NumFoldBlocks(chunk.num_elements) + kWarps - 1) / kWarps, kThreads};
  if (chunk.first) {
    Launch(stream, shape, FoldKernel<dtype, true>, chunk, vector);
  } else {
    Launch(stream, shape, FoldKernel<dtype, false>, chunk, vector);
  }
}

}  // namespace

int64_t NumFoldBlocks(int64_t num_elements) { return (num_elements + kBlock - 1) / kBlock; }

void FoldChunk(Stream& stream, const FoldChunkArguments& chunk) {
  if (chunk.num_elements == 0) return;
  switch (chunk.dtype) {
    case DType::kFloat32:
      FoldAs<DType::kFloat32>(stream, chunk);
      break;
    case DType::kBFloat16:
      FoldAs<DType::kBFloat16>(stream, chunk);
      break;
    case DType::kFloat16:
      FoldAs<DType::kFloat16>(stream, chunk);
      break;
  }
  Launch(stream, {1, kThreads}, AddSquaresKernel, chunk.block_squares,
         NumFoldBlocks(chunk.num_elements), chunk.facts);
}

}  // namespace kaon::kernels::cuda
