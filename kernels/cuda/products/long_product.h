// fp32 products with a long inner dimension, cut into pieces. The library may add the terms of an
// element one after another, and each addition rounds. A sum of n equal terms is then off by up to
// n 2^-26. Products of long rows would miss the tolerance [N9] of numerics.md. Other products are
// left whole. Neither the cut nor the bits of a matrix depend on its batch. Any thread.
// If the results of all pieces of a matrix fit into the scratch, one batch and one product compute
// them, and one kernel adds them. Otherwise each piece is added to the result so far.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_LONG_PRODUCT_H_
#define KAON_KERNELS_CUDA_PRODUCTS_LONG_PRODUCT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/products/products.h"

namespace kaon::kernels::cuda {

// Longest inner dimension of a piece whose result lies in the scratch. 128 equal terms are off by
// at most 2e-6; steep coefficient sets magnify that two hundred times.
inline constexpr int64_t kLongestPiece = 128;
// Longest inner dimension of a piece that is added to a result too large for that. Shorter ones
// would take longer, since each reads and writes the result.
inline constexpr int64_t kLongestPieceOfLarge = 512;

// As Products::Find; operands must not come in arrays (CHECK).
absl::Status FindInPieces(Products& products, const BatchedProduct& product);
// Queues a product that FindInPieces has accepted (CHECK). Uses the scratch of symmetric forms.
void MultiplyInPieces(Products& products, const ProductStream& on, const BatchedProduct& product,
                      float alpha, float beta, const ProductOperands& operands);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_LONG_PRODUCT_H_
