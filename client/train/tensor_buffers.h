// Holds a worker's tensors as they are on the wire: one dtype, one buffer per parameter id.
// Encoding rounds once, to nearest even. So a worker sees the same values whether they passed
// through a server or not. Plain values; any thread.
#ifndef KAON_CLIENT_TRAIN_TENSOR_BUFFERS_H_
#define KAON_CLIENT_TRAIN_TENSOR_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace kaon::train {

struct TensorBuffers {
  kernels::DType dtype = kernels::DType::kFloat32;
  std::vector<std::vector<std::byte>> tensors;

  uint64_t num_bytes() const;
};

// Rounds `values` to `buffers->dtype`; reuses memory.
void Encode(const std::vector<std::vector<float>>& values, TensorBuffers* buffers);

// Writes the values of `buffers` as fp32.
void Decode(const TensorBuffers& buffers, std::vector<std::vector<float>>* values);

// Allocates `buffers` for tensors with the element counts of `like`.
void Allocate(const std::vector<std::vector<float>>& like, TensorBuffers* buffers);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_TENSOR_BUFFERS_H_
