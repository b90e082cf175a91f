#include "kernels/cuda/product_tuning.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "kernels/cuda/cross_check.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace {

// Two roundings of a sum differ by one unit in the last place at most: 2^-7 of it in bf16, 2^-10 in
// fp16.
float MostDifference(NsDType dtype) { return dtype == NsDType::kBFloat16 ? 0x1p-6f : 0x1p-9f; }

// Matrices of one product: A (n, k), and two results (n, n).
struct Memory {
  std::byte* a;
  std::byte* c;
  std::byte* d;
  uint32_t* largest_bits;

  Memory(const SymmetricShape& shape, std::byte* memory) {
    const int64_t bytes = shape.batch * ElementBytes(shape.dtype);
    const int64_t square = LayoutOf(shape.dtype, shape.n, shape.n).stride * bytes;
    a = memory;
    c = a + LayoutOf(shape.dtype, shape.n, shape.k).stride * bytes;
    d = c + square;
    largest_bits = reinterpret_cast<uint32_t*>(d + square);
  }
};

// Sums off the diagonal are about 1, and those on it about sqrt(k).
float AlphaOf(const SymmetricShape& shape) {
  return 3 / std::sqrt(static_cast<float>(shape.k));
}
constexpr float kBeta = -0.5f;

uint32_t ReadWord(const TuningOptions*, Stream&, const uint32_t*);

// Device memory that is freed at the end of the scope.
class DeviceMemory {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(Device& device, uint64_t bytes) {
    const absl::StatusOr<void*> memory = device.Allocate(bytes);
    if (!memory.ok()) return memory.status();
    return std::make_unique<DeviceMemory>(device, *memory);
  }
  DeviceMemory(Device& device, void* memory) : device_(device), memory_(memory) {}
  ~DeviceMemory() { device_.Free(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  Device& device_;
  void* const memory_;
};

}  // namespace
}  // namespace kaon::kernels::cuda
