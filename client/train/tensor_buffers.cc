#include "client/train/tensor_buffers.h"

#include "absl/types/span.h"

namespace kaon::train {

uint64_t TensorBuffers::num_bytes() const {
  uint64_t bytes = 0;
  for (const std::vector<std::byte>& tensor : tensors) bytes += tensor.size();
  return bytes;
}

void Allocate(const std::vector<std::vector<float>>& like, TensorBuffers* buffers) {
  buffers->tensors.resize(like.size());
  for (size_t id = 0; id < like.size(); ++id) {
    buffers->tensors[id].resize(like[id].size() * kernels::SizeOf(buffers->dtype));
  }
}

void Encode(const std::vector<std::vector<float>>& values, TensorBuffers* buffers) {
  Allocate(values, buffers);
  for (size_t id = 0; id < values.size(); ++id) {
    kernels::FromFloat(buffers->dtype, values[id], buffers->tensors[id].data());
  }
}

void Decode(const TensorBuffers& buffers, std::vector<std::vector<float>>* values) {
  values->resize(buffers.tensors.size());
  for (size_t id = 0; id < buffers.tensors.size(); ++id) {
    std::vector<float>& out = (*values)[id];
    out.resize(buffers.tensors[id].size() / kernels::SizeOf(buffers.dtype));
    kernels::ToFloat(buffers.dtype, buffers.tensors[id].data(), absl::MakeSpan(out));
  }
}

}  // namespace kaon::train
