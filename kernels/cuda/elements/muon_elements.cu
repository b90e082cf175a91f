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
  DigestTable digest;
  MomentumStep step;
  OfWarps<uint64_t> digest_sum;
  OfWarps<uint32_t> largest;
};

struct DescribeShared {
  NormLanes lanes;
  OfWarps<uint32_t> largest;
};

// Returns the step that a block of the grid belongs to.
KAON_DEVICE const MomentumStep& StepOf(const MomentumBatch& batch, int64_t block) {
  int64_t low = 0;
  for (int64_t high = batch.count; high - low > 1;) {
    const int64_t middle = (low + high) / 2;
    (batch.steps[middle].first_block <= block ? low : high) = middle;
  }
  return batch.steps[low];
}

// All threads call it. `norms` receives the facts about the values that `lanes` kept.
KAON_DEVICE void WriteNorm(NormLanes& lanes, uint32_t largest, OfWarps<uint32_t>& warps,
                           NormBlock& norm) {
  const double sum = lanes.SumOfSquares();
  const uint32_t of_block = LargestOfBlock(largest, warps);
  if (threadIdx.x == 0) norm = {sum, of_block, 0};
}

// One thread block steps one block of the norm.
template <StateDType dtype>
__global__ void __launch_bounds__(kThreads) MomentumKernel(const MomentumBatch batch) {
  MomentumShared& shared = SharedMemory<MomentumShared>();
  FillDigestTable(shared.digest);
  if (threadIdx.x == 0) shared.step = StepOf(batch, blockIdx.x);
  __syncthreads();
  const MomentumStep& step = shared.step;
  const int64_t block = int64_t{blockIdx.x} - step.first_block;
  const bool vector = IsVectorAligned(step.grad) && IsVectorAligned(step.param) &&
                      IsVectorAligned(step.state) && IsVectorAligned(step.direction);
  DigestSum digest(shared.digest, step.state_key);
  uint32_t largest = 0;
  for (int64_t at = 4 * threadIdx.x; at < kNormBlockElements; at += kTurn) {
    const int64_t first = block * kNormBlockElements + at;
    const int count = NumOfFour(first, step.num_elements);
    const Four<float> grad = LoadFourAs(step.grad_dtype, step.grad, first, count, vector);
    Four<float> param = {};
    if (step.scalars.decay.l2 != 0) param = LoadFour(step.param + first, count, vector);
    Four<float> momentum = StoredState<dtype>::Load(step.state, first, count, vector);
    Four<float> direction = {};
    for (int i = 0; i < 4; ++i) {
      if (i >= count) continue;
      direction.of[i] = MuonDirection(step.scalars, grad.of[i], param.of[i], momentum.of[i]);
      largest = LargerWithoutNan(largest, direction.of[i]);
    }
    if (step.writes_state) {
      StoredState<dtype>::Store(momentum, step.state, first, count, vector, digest);
    }
    if (step.direction == nullptr) continue;
    StoreFour(direction, step.direction + first, count, vector);
    shared.lanes.Keep(direction, at);
  }
  if (step.writes_state) {
    AddOfBlock(digest.sum(), shared.digest_sum, &step.facts->slots_digest);
  }
  if (step.direction == nullptr) return;
  WriteNorm(shared.lanes, largest, shared.largest, step.norms[block]);
}

// One thread block describes one block of the norm of a matrix, row by row.
__global__ void __launch_bounds__(kThreads) DescribeKernel(const MuonMatrices batch) {
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
  }
}

void DescribeMatrices(Stream& stream, const MuonMatrices& batch) {
  const int64_t blocks = NumNormBlocks(batch.rows * batch.cols);
  Launch(stream, {batch.count * blocks, kThreads}, DescribeKernel, batch);
}

}  // namespace kaon::kernels::cuda
