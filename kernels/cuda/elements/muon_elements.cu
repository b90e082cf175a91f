#include "kernels/cuda/elements/digest_sum.h"
#include "kernels/cuda/elements/four.h"
#include "kernels/cuda/elements/muon_elements.h"
#include "kernels/cuda/elements/muon_matrix.h"
#include "kernels/cuda/elements/norm_lanes.h"
#include "kernels/cuda/elements/stored_state.h"
#include "kernels/cuda/launch.h"

namespace kaon::kernels::cuda {
namespace {

struct MomentumShared {
  NormLanes lanes;
  DigestKeys keys;
  MomentumStep step;
  OfWarps<uint64_t> digest_sum;
  OfWarps<uint32_t> largest;
};

struct DescribeShared {
  NormLanes lanes;
  OfWarps<uint32_t> largest;
};

// Copies the step that a block of the grid belongs to, in the one thread that finds it.
KAON_DEVICE void CopyStepOf(const MomentumBatch& batch, int64_t block, MomentumStep& step) {
  int64_t found = -1;
  for (int64_t i = threadIdx.x; i < batch.count; i += kThreads) {
    const bool ends = i + 1 < batch.count && batch.steps[i + 1].first_block <= block;
    if (!ends && batch.steps[i].first_block <= block) found = i;
  }
  if (found >= 0) step = batch.steps[found];
}

// All threads call it. `norm` receives the facts about the values that `lanes` kept.
KAON_DEVICE void WriteNorm(NormLanes& lanes, uint32_t largest, OfWarps<uint32_t>& warps,
                           NormBlock& norm) {
  RaiseInWarps(largest, warps);
  const double sum = lanes.SumOfSquares();
  if (NormLanes::GetsSum()) norm = {sum, LargestOfWarps(warps), 0};
}

// Steps the elements of one thread in a norm block that starts at `block_begin`. Returns the bits
// of the largest direction. `whole`: all elements exist and are aligned.
template <StateDType dtype, bool whole>
KAON_DEVICE uint32_t StepElements(const MomentumStep& step, int64_t block_begin, bool vector,
                                  NormLanes& lanes, DigestSum& digest) {
  constexpr int kAhead = dtype == StateDType::kInt8 ? 1 : 2;
  const int64_t begin = block_begin + 4 * threadIdx.x;
  uint32_t largest = 0;
  // Loads cannot pass stores to memory that may be the same, so several turns load first.
  for (int at = 0; at < kNormBlockElements; at += kAhead * static_cast<int>(kTurn)) {
    int count[kAhead];
    Four<float> grad[kAhead];
    Four<float> param[kAhead];
    Four<float> momentum[kAhead];
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int64_t first = begin + at + k * kTurn;
      count[k] = whole ? 4 : NumOfFour(first, step.num_elements);
      grad[k] = LoadFourAs(step.grad_dtype, step.grad, first, count[k], whole || vector);
      param[k] = {};
      if (step.scalars.decay.l2 != 0) {
        param[k] = LoadFour(step.param + first, count[k], whole || vector);
      }
      momentum[k] = StoredState<dtype>::Load(step.state, first, count[k], whole || vector);
    }
    KAON_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int64_t first = begin + at + k * kTurn;
      Four<float> direction = {};
      for (int i = 0; i < 4; ++i) {
        if (i >= count[k]) continue;
        direction.of[i] =
            MuonDirection(step.scalars, grad[k].of[i], param[k].of[i], momentum[k].of[i]);
        largest = LargerWithoutNan(largest, direction.of[i]);
      }
      if (step.writes_state) {
        StoredState<dtype>::Store(momentum[k], step.state, first, count[k], whole || vector,
                                  digest);
      }
      if (step.direction == nullptr) continue;
      StoreFour(direction, step.direction + first, count[k], whole || vector);
      lanes.Keep(direction, first - block_begin);
    }
  }
  return largest;
}

// One thread block steps one block of the norm.
template <StateDType dtype>
__global__ void __launch_bounds__(kThreads, kNormBlocksAtOnce)
    MomentumKernel(const MomentumBatch batch) {
  MomentumShared& shared = SharedMemory<MomentumShared>();
  CopyStepOf(batch, blockIdx.x, shared.step);
  __syncthreads();
  const MomentumStep step = shared.step;
  const int64_t block = int64_t{blockIdx.x} - step.first_block;
  const int64_t begin = block * kNormBlockElements;
  const int64_t first_word = StoredState<dtype>::WordOf(begin);
  shared.keys.Fill(step.state_key, first_word);
  __syncthreads();
  const bool vector = IsVectorAligned(step.grad) && IsVectorAligned(step.param) &&
                      IsVectorAligned(step.state) && IsVectorAligned(step.direction);
  DigestSum digest(kDigestTable, step.state_key, shared.keys, first_word);
  // A second loop for int8 takes too many registers.
  constexpr bool kHasWhole = dtype != StateDType::kInt8;
  const uint32_t largest =
      kHasWhole && vector && begin + kNormBlockElements <= step.num_elements
          ? StepElements<dtype, true>(step, begin, vector, shared.lanes, digest)
          : StepElements<dtype, false>(step, begin, vector, shared.lanes, digest);
  AddInWarps(digest.sum(), shared.digest_sum);
  if (step.direction != nullptr) {
    WriteNorm(shared.lanes, largest, shared.largest, step.norms[block]);
  } else {
    __syncthreads();
  }
  if (step.writes_state && NormLanes::IsFree()) {
    AtomicAdd(&step.facts->slots_digest, SumOfWarps(shared.digest_sum));
  }
}

// One thread block describes one block of the norm of a matrix, row by row.
__global__ void __launch_bounds__(kThreads, kNormBlocksAtOnce)
    DescribeKernel(const MuonMatrices batch) {
  DescribeShared& shared = SharedMemory<DescribeShared>();
  const int64_t num_elements = batch.rows * batch.cols;
  const int64_t blocks = (num_elements + kNormBlockElements - 1) / kNormBlockElements;
  const MuonMatrix& matrix = batch.matrices[blockIdx.x / blocks];
  const int64_t block = blockIdx.x % blocks;
  uint32_t largest = 0;
  for (int64_t at = 4 * threadIdx.x; at < kNormBlockElements; at += kTurn) {
    const int64_t first = block * kNormBlockElements + at;
    const int count = NumOfFour(first, num_elements);
    const int64_t row = first / batch.cols;
    const int64_t col = first % batch.cols;
    Four<float> x = {};
    if (count > 0 && col + count <= batch.cols) {
      x = LoadOfRow(matrix.direction + RowStart(matrix, row) + col, count);
    } else {
      for (int i = 0; i < 4; ++i) {
        if (i >= count) continue;
        const int64_t element = first + i;
        x.of[i] = matrix.direction[RowStart(matrix, element / batch.cols) + element % batch.cols];
      }
    }
    for (const float value : x.of) largest = LargerWithoutNan(largest, value);
    shared.lanes.Keep(x, at);
  }
  WriteNorm(shared.lanes, largest, shared.largest, matrix.norms[block]);
}

}  // namespace

int64_t NumNormBlocks(int64_t num_elements) {
  return (num_elements + kNormBlockElements - 1) / kNormBlockElements;
}

void StepMomentum(Stream& stream, const MomentumBatch& batch) {
  const LaunchShape shape = {batch.num_blocks, kThreads};
  switch (batch.state_dtype) {
    case StateDType::kFloat32:
      return Launch(stream, shape, MomentumKernel<StateDType::kFloat32>, batch);
    case StateDType::kBFloat16:
      return Launch(stream, shape, MomentumKernel<StateDType::kBFloat16>, batch);
    case StateDType::kInt8:
      return Launch(stream, shape, MomentumKernel<StateDType::kInt8>, batch);
    case StateDType::kSqrtUInt8:
      break;  // A momentum has a sign.
  }
}

void DescribeMatrices(Stream& stream, const MuonMatrices& batch) {
  const int64_t blocks = NumNormBlocks(batch.rows * batch.cols);
  Launch(stream, {batch.count * blocks, kThreads}, DescribeKernel, batch);
}

}  // namespace kaon::kernels::cuda
