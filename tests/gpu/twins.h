// One block that uses every instruction of instructions.h but setmaxnreg: mbarriers, tensor copies,
// products of a warpgroup. Over the host it runs their twins, on a GPU the instructions. Queued on
// one stream by one thread.
#ifndef KAON_TESTS_GPU_TWINS_H_
#define KAON_TESTS_GPU_TWINS_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/dtype.h"

namespace kaon::gpu_check {

// Boxes of 64 columns: 64 rows of A and 256 rows of B.
inline constexpr int kTwinRows = 64;
inline constexpr int kTwinCols = 256;
inline constexpr int kTwinInner = 64;
inline constexpr int kTwinThreads = 128;
inline constexpr int kTwinBoxBytes = (kTwinRows + kTwinCols) * kTwinInner * 2;
// Boxes are loaded one after the other, and their products are added.
inline constexpr int kTwinRounds = 3;

// A batch of matrices of 16 bits an element in device memory.
struct TwinMatrices {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch = 0;
  int64_t batch = 1;
  int64_t stride = 0;
};

// First column, row and matrix of a box.
struct TwinBox {
  int x = 0;
  int y = 0;
  int z = 0;
};

struct TwinRun {
  kernels::DType dtype = kernels::DType::kBFloat16;
  TwinMatrices a;
  TwinMatrices b;
  TwinBox a_boxes[kTwinRounds];
  TwinBox b_boxes[kTwinRounds];
  // Receives the shared memory of each round: kTwinRounds * kTwinBoxBytes.
  unsigned char* boxes = nullptr;
  // Receives the registers of each thread: kTwinThreads * 128 sums. It holds the first addends, if
  // `adds`.
  float* sums = nullptr;
  bool adds = false;
};

void RunTwins(kernels::cuda::Stream& stream, const TwinRun& run);

}  // namespace kaon::gpu_check

#endif  // KAON_TESTS_GPU_TWINS_H_
