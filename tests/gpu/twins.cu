#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/instructions.h"
#include "kernels/cuda/products/tensor_map.h"
#include "tests/gpu/twins.h"

// Other architectures compile a trap, as in kernels/cuda/products/symmetric_kernels.cu.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KAON_HAS_WGMMA 1
#endif

namespace kaon::gpu_check {
namespace {

using kernels::DType;
using kernels::cuda::Arrive;
using kernels::cuda::ArriveExpecting;
using kernels::cuda::AwaitPhase;
using kernels::cuda::AwaitSums;
using kernels::cuda::CommitProducts;
using kernels::cuda::DynamicSharedMemory;
using kernels::cuda::FenceBarriers;
using kernels::cuda::FenceProducts;
using kernels::cuda::InitBarrier;
using kernels::cuda::kBoxRowBytes;
using kernels::cuda::LoadBox;
using kernels::cuda::Multiply;
using kernels::cuda::OperandDescriptor;
using kernels::cuda::PrefetchMap;
using kernels::cuda::TensorMap;

struct Arguments {
  TensorMap a;
  TensorMap b;
  TwinRun run;
};

struct Memory {
  unsigned char a[kTwinRows * kTwinInner * 2];
  unsigned char b[kTwinCols * kTwinInner * 2];
  uint64_t full;
  uint64_t empty;
};

template <DType dtype>
__global__ void __launch_bounds__(kTwinThreads) Twins(const __grid_constant__ Arguments arguments) {
#if defined(KAON_HAS_WGMMA)
  Memory& memory = *reinterpret_cast<Memory*>(DynamicSharedMemory());
  const TwinRun& run = arguments.run;
  if (threadIdx.x == 0) {
    PrefetchMap(arguments.a);
    PrefetchMap(arguments.b);
    InitBarrier(&memory.full, 1);
    InitBarrier(&memory.empty, kTwinThreads);
    FenceBarriers();
  }
  __syncthreads();
  float d[128];
  for (int i = 0; i < 128; ++i) d[i] = run.adds ? run.sums[threadIdx.x * 128 + i] : 0;
  for (int round = 0; round < kTwinRounds; ++round) {
    if (threadIdx.x == 0) {
      if (round > 0) AwaitPhase(&memory.empty, static_cast<uint32_t>(round - 1) % 2);
      ArriveExpecting(&memory.full, kTwinBoxBytes);
      const TwinBox a = run.a_boxes[round];
      const TwinBox b = run.b_boxes[round];
      LoadBox(memory.a, arguments.a, &memory.full, a.x, a.y, a.z);
      LoadBox(memory.b, arguments.b, &memory.full, b.x, b.y, b.z);
    }
    AwaitPhase(&memory.full, static_cast<uint32_t>(round) % 2);
    for (int i = static_cast<int>(threadIdx.x); i < kTwinBoxBytes; i += kTwinThreads) {
      run.boxes[round * kTwinBoxBytes + i] = memory.a[i];
    }
    FenceProducts();
    KAON_UNROLL
    for (int inner = 0; inner < kTwinInner / 16; ++inner) {
      const auto offset = static_cast<uint64_t>(inner * 2);
      Multiply<dtype>(d, OperandDescriptor(memory.a, 8 * kBoxRowBytes) + offset,
                      OperandDescriptor(memory.b, 8 * kBoxRowBytes) + offset,
                      run.adds || round > 0 || inner > 0);
    }
    CommitProducts();
    AwaitSums(d);
    Arrive(&memory.empty);
  }
  for (int i = 0; i < 128; ++i) run.sums[threadIdx.x * 128 + i] = d[i];
#else
  __trap();
#endif
}

TensorMap MapOf(const TwinMatrices& m, DType dtype, int box_rows) {
  return kernels::cuda::MakeTensorMap({m.data, m.rows, m.cols, m.pitch, m.batch, m.stride}, dtype,
                                      box_rows);
}

}  // namespace

void RunTwins(kernels::cuda::Stream& stream, const TwinRun& run) {
  const Arguments arguments = {MapOf(run.a, run.dtype, kTwinRows),
                               MapOf(run.b, run.dtype, kTwinCols), run};
  kernels::cuda::Launch(
      stream, {.blocks = 1, .threads = kTwinThreads, .dynamic_shared_bytes = sizeof(Memory)},
      run.dtype == DType::kBFloat16 ? Twins<DType::kBFloat16> : Twins<DType::kFloat16>, arguments);
}

}  // namespace kaon::gpu_check
