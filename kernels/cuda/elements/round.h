// Rounds fp32 values in device memory to 16 bits, for pulls. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_ROUND_H_
#define KAON_KERNELS_CUDA_ELEMENTS_ROUND_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/dtype.h"

namespace kaon::kernels::cuda {

// to[i] <- values[i] as `dtype`, bf16 or fp16. Both are aligned for their elements; 16 bytes are
// fastest.
void RoundElements(Stream& stream, DType dtype, const float* values, int64_t num_elements,
                   void* to);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_ROUND_H_
