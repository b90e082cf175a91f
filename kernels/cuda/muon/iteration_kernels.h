// Element-wise steps of Newton-Schulz on batches of square matrices in device memory, laid out by
// LayoutOf (products.h). Each queues its work on the stream.
#ifndef KAON_KERNELS_CUDA_MUON_ITERATION_KERNELS_H_
#define KAON_KERNELS_CUDA_MUON_ITERATION_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels::cuda {

struct SquareBatch {
  NsDType dtype = NsDType::kBFloat16;
  int64_t n = 0;
  int64_t batch = 1;
};

// to <- factor from, rounded. Also of the padding, which stays undefined.
void Scale(Stream& stream, const SquareBatch& squares, const void* from, float factor, void* to);

// Adds `value` to the diagonals, rounded.
void AddToDiagonal(Stream& stream, const SquareBatch& squares, float value, void* x);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_ITERATION_KERNELS_H_
