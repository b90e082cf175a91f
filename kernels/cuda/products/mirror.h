// Mirrors the lower triangles of a batch of square matrices (layout: products.h) into the upper
// ones, so that they are exactly symmetric. Queues its work on the stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_MIRROR_H_
#define KAON_KERNELS_CUDA_PRODUCTS_MIRROR_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/muon/iteration_kernels.h"

namespace kaon::kernels::cuda {

// Elements of 16 bits.
void Mirror(Stream& stream, const SquareBatch& squares, void* x);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_MIRROR_H_
