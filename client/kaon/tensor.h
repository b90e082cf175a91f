// Views of tensors in the caller's memory. A view owns nothing: keep the memory alive and
// unmodified as each call says. Plain values; any thread. C++17, standard library only.
#ifndef KAON_CLIENT_KAON_TENSOR_H_
#define KAON_CLIENT_KAON_TENSOR_H_

#include <cstddef>
#include <cstdint>

namespace kaon {

enum class DType : uint8_t { kFloat32 = 1, kBFloat16 = 2, kFloat16 = 3 };

// Returns the bytes per element.
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// Returns "float32", "bfloat16" or "float16".
const char* NameOf(DType dtype);

// Dense, row-major elements to read.
struct TensorView {
  const void* elements = nullptr;
  uint64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  // Number of the device whose memory has the elements; -1: host memory. A client without
  // ClientOptions::nccl refuses a tensor on a device.
  int device = -1;
  // Event of the device (cudaEvent_t) that the elements are ready after; null: they are ready. The
  // library waits for it before it reads. Keep it as long as the elements.
  void* ready_event = nullptr;

  size_t num_bytes() const { return num_elements * SizeOf(dtype); }
};

// Dense, row-major elements to write.
struct MutableTensorView {
  void* elements = nullptr;
  uint64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  // Number of the device whose memory gets the elements; -1: host memory. A client without
  // ClientOptions::nccl refuses a target on a device. The library writes without an event: nothing
  // may use the elements meanwhile. It does not count weights that arrive there as infinity.
  int device = -1;

  size_t num_bytes() const { return num_elements * SizeOf(dtype); }
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_TENSOR_H_
