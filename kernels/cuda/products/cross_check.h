// Test patterns and comparison of matrices in device memory, for the cross-check of symmetric
// products. Each queues its work on the stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_CROSS_CHECK_H_
#define KAON_KERNELS_CUDA_PRODUCTS_CROSS_CHECK_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/products/products.h"

namespace kaon::kernels::cuda {

// A batch of (rows, cols) matrices laid out by LayoutOf.
struct CheckedMatrices {
  NsDType dtype = NsDType::kBFloat16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t batch = 1;
};

// Writes values of [-1, 1] that depend on their place alone; `symmetric`: on the unordered pair of
// row and column.
void FillPattern(Stream& stream, const CheckedMatrices& matrices, bool symmetric, void* x);

// Raises *largest_bits to the bits of the largest |x - y| / (max(|x|, |y|) + floor). It is at least
// infinity if an element is not finite.
void CompareMatrices(Stream& stream, const CheckedMatrices& matrices, const void* x, const void* y,
                     float floor, uint32_t* largest_bits);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_CROSS_CHECK_H_
