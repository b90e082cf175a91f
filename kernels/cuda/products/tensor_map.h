// A batch of matrices of 16-bit elements, as the copy engine (TMA) of a device reads it. It copies
// boxes of rows by 64 columns into shared memory: rows of 128 bytes with the 128-byte swizzle.
// Elements outside a matrix become zero. Only .cu files include this. A value; any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_TENSOR_MAP_H_
#define KAON_KERNELS_CUDA_PRODUCTS_TENSOR_MAP_H_

#include <cstdint>

#include "kernels/dtype.h"

#if defined(__CUDACC__)
#include <cuda.h>
#endif

namespace kaon::kernels::cuda {

// `data` is 16-byte aligned; `pitch` (elements from row to row) and `stride` (from matrix to
// matrix) are multiples of 8.
struct MatrixBatch {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch = 0;
  int64_t batch = 1;
  int64_t stride = 0;
};

inline constexpr int kBoxCols = 64;
inline constexpr int kBoxRowBytes = kBoxCols * 2;

#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
struct TensorMap {
  MatrixBatch matrices;
  int box_rows = 0;
};
#endif

// `box_rows` is at most 256. CHECKs the alignments.
TensorMap MakeTensorMap(const MatrixBatch& matrices, DType dtype, int box_rows);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_TENSOR_MAP_H_
