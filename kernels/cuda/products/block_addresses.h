// Addresses of the blocks of symmetric products, for libraries that multiply arrays of matrices.
// Queues its work on the stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_BLOCK_ADDRESSES_H_
#define KAON_KERNELS_CUDA_PRODUCTS_BLOCK_ADDRESSES_H_

#include <cstdint>

#include "kernels/cuda/products/products.h"

namespace kaon::kernels::cuda {

// The lower triangle of `side` x `side` blocks of each of `batch` matrices D, with A's and B's rows
// and C's block that each takes. Elements have 16 bits.
struct BlockTriangle {
  int64_t side = 0;
  int64_t edge = 0;
  int64_t batch = 1;
  BatchLayout a;
  BatchLayout d;
  ProductOperands operands;

  int64_t BlocksPerMatrix() const { return side * (side + 1) / 2; }
  int64_t NumBlocks() const { return batch * BlocksPerMatrix(); }
};

// Four arrays of NumBlocks() addresses each, of A, B, C and D, one after the other.
void FillBlockAddresses(Stream& stream, const BlockTriangle& triangle, void** addresses);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_BLOCK_ADDRESSES_H_
