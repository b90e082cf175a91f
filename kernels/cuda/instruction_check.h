// A kernel that does no more than one tensor copy, one product of a warpgroup and one barrier each
// way. It shows on a device whether the twins of on_host/instructions_on_host.h are right. One
// thread uses a stream.
#ifndef KAON_KERNELS_CUDA_INSTRUCTION_CHECK_H_
#define KAON_KERNELS_CUDA_INSTRUCTION_CHECK_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

// Device memory. The matrices start on 16-byte boundaries, and `pitch` is a multiple of 8 elements.
struct InstructionCheck {
  DType dtype = DType::kBFloat16;
  // Row-major; elements past the bounds count as zero.
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  int64_t rows_a = 64;
  int64_t rows_b = 256;
  int64_t cols = 64;
  int64_t pitch = 64;
  // Both products start at this row of the matrices and this column.
  int row = 0;
  int col = 0;
  // 64 x 256, row-major: the sums over 64 columns.
  float* sums = nullptr;
};

// Queues the kernel. The device must support symmetric products.
void CheckInstructions(Stream& stream, const InstructionCheck& check);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_INSTRUCTION_CHECK_H_
