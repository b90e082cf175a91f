// Adds the results of the pieces of a product (long_product.h). Queues its work on the stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_PIECE_SUMS_H_
#define KAON_KERNELS_CUDA_PRODUCTS_PIECE_SUMS_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/products/products.h"

namespace kaon::kernels::cuda {

// `count` matrices (rows, cols), and C and D, laid out alike.
struct PieceSums {
  int64_t rows = 0;
  int64_t cols = 0;
  BatchLayout layout = {};
  int64_t count = 0;
  float alpha = 1;
  float beta = 0;
};

// D <- alpha (sum of the pieces) + beta C, in float64 and in ascending order, rounded once. C is
// read only if beta != 0; it may be D.
void AddPieces(Stream& stream, const PieceSums& sums, const float* pieces, const float* c,
               float* d);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_PIECE_SUMS_H_
