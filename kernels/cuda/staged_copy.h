// Copies between any host memory and a device, through the page-locked pieces of a lane. The host
// copies one piece while the device copies the other. One thread at a time per lane.
#ifndef KAON_KERNELS_CUDA_STAGED_COPY_H_
#define KAON_KERNELS_CUDA_STAGED_COPY_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/lane_pool.h"

namespace kaon::kernels::cuda {

// Copies bytes to device memory. Done when it returns.
void CopyInThrough(Lane& lane, const std::byte* from, uint64_t bytes, std::byte* device);

// Copies bytes from device memory. Done when it returns.
void CopyOutThrough(Lane& lane, const std::byte* device, uint64_t bytes, std::byte* to);

// Writes bytes that the device computes. `queue` queues the work that writes the bytes
// [offset, offset + n) of the result to the piece's page-locked memory.
void CopyOutPieces(Lane& lane, uint64_t bytes,
                   absl::FunctionRef<void(Lane::Piece& piece, uint64_t offset, uint64_t n)> queue,
                   std::byte* to);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_STAGED_COPY_H_
