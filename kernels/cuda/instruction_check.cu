#include "kernels/cuda/instruction_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/instructions.h"
#include "kernels/cuda/products/tensor_map.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kRows = 64;
constexpr int kCols = 256;
// The last warp copies, the others multiply.
constexpr int kThreads = 160;

struct Arguments {
  TensorMap a;
  TensorMap b;
  int row;
  int col;
  float* sums;
};

struct Memory {
  unsigned char a[kRows * kBoxRowBytes];
  unsigned char b[kCols * kBoxRowBytes];
  uint64_t full;
  uint64_t empty;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KAON_HAS_WGMMA 1

// Boxes that go through the one place in shared memory, to try both parities of the barriers.
constexpr int kRounds = 4;

KAON_DEVICE void Copy(const Arguments& arguments, Memory& memory) {
  for (uint32_t round = 0; round < kRounds; ++round) {
    if (round > 0) AwaitPhase(&memory.empty, (round - 1) % 2);
    ArriveExpecting(&memory.full, (kRows + kCols) * kBoxRowBytes);
    LoadBox(memory.a, arguments.a, &memory.full, arguments.col, arguments.row, 0);
    LoadBox(memory.b, arguments.b, &memory.full, arguments.col, arguments.row, 0);
  }
}

template <DType dtype>
KAON_DEVICE void MultiplyBoxes(const Arguments& arguments, Memory& memory) {
  float d[128];
  for (uint32_t round = 0; round < kRounds; ++round) {
    AwaitPhase(&memory.full, round % 2);
    FenceProducts();
    const uint64_t a = OperandDescriptor(memory.a, 8 * kBoxRowBytes);
    const uint64_t b = OperandDescriptor(memory.b, 8 * kBoxRowBytes);
    KAON_UNROLL
    for (uint64_t i = 0; i < kBoxCols / 16; ++i) Multiply<dtype>(d, a + i * 2, b + i * 2, i > 0);
    CommitProducts();
    AwaitSums(d);
    if (threadIdx.x % 32 == 0) Arrive(&memory.empty);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  KAON_UNROLL
  for (int i = 0; i < 128; ++i) {
    const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    arguments.sums[(row + i % 4 / 2 * 8) * kCols + col] = d[i];
  }
}

#endif

template <DType dtype>
__global__ void __launch_bounds__(kThreads, 1)
    CheckInstructionsKernel(const __grid_constant__ Arguments arguments) {
#if defined(KAON_HAS_WGMMA)
  Memory& memory = *reinterpret_cast<Memory*>(DynamicSharedMemory());
  if (threadIdx.x == 0) {
    InitBarrier(&memory.full, 1);
    InitBarrier(&memory.empty, 4);
    FenceBarriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) Copy(arguments, memory);
  } else {
    MultiplyBoxes<dtype>(arguments, memory);
  }
#else
  __trap();
#endif
}

template <DType dtype>
void LaunchAs(Stream& stream, const InstructionCheck& check) {
  const auto map = [&](const uint16_t* data, int64_t rows, int box_rows) {
    return MakeTensorMap({const_cast<uint16_t*>(data), rows, check.cols, check.pitch}, dtype,
                         box_rows);
  };
  Launch(stream, {.threads = kThreads, .dynamic_shared_bytes = sizeof(Memory)},
         CheckInstructionsKernel<dtype>,
         Arguments{map(check.a, check.rows_a, kRows), map(check.b, check.rows_b, kCols), check.row,
                   check.col, check.sums});
}

}  // namespace

void CheckInstructions(Stream& stream, const InstructionCheck& check) {
  if (check.dtype == DType::kBFloat16) {
    LaunchAs<DType::kBFloat16>(stream, check);
  } else {
    LaunchAs<DType::kFloat16>(stream, check);
  }
}

}  // namespace kaon::kernels::cuda
