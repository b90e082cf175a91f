// Facts about arrays in device memory: digest and largest magnitude, with the CPU's bits. One
// thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_ELEMENTS_DIGEST_H_
#define KAON_KERNELS_CUDA_ELEMENTS_DIGEST_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace kaon::kernels::cuda {

// Adds TensorDigester::OfBytes of a whole slot to `*digest` in device memory. `bytes` has any
// alignment; 16 bytes are fastest.
void AddDigest(Stream& stream, uint32_t parameter_id, uint32_t slot, const std::byte* bytes,
               uint64_t num_bytes, uint64_t* digest);

// Raises `*bits` in device memory to LargestMagnitudeBits of the values.
void MaxMagnitude(Stream& stream, const float* values, int64_t num_elements, uint32_t* bits);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENTS_DIGEST_H_
