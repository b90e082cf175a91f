// Memory of a device, or page-locked memory of the host, that is freed with its owner. Movable. The
// device outlives it; the device frees it only once no work needs it.
#ifndef KAON_KERNELS_CUDA_OWNED_MEMORY_H_
#define KAON_KERNELS_CUDA_OWNED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"

namespace kaon::kernels::cuda {

class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(OwnedMemory&& other) { *this = std::move(other); }
  OwnedMemory& operator=(OwnedMemory&& other) {
    std::swap(device_, other.device_);
    std::swap(pinned_, other.pinned_);
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~OwnedMemory() {
    if (memory_ == nullptr) return;
    pinned_ ? device_->FreePinned(memory_) : device_->Free(memory_);
  }

  // The errors of Device::Allocate and Device::AllocatePinned.
  static absl::StatusOr<OwnedMemory> OnDevice(Device& device, uint64_t bytes) {
    return Take(device, false, bytes, device.Allocate(bytes));
  }
  static absl::StatusOr<OwnedMemory> Pinned(Device& device, uint64_t bytes) {
    return Take(device, true, bytes, device.AllocatePinned(bytes));
  }

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  uint64_t size() const { return size_; }

 private:
  static absl::StatusOr<OwnedMemory> Take(Device& device, bool pinned, uint64_t bytes,
                                          const absl::StatusOr<void*>& memory) {
    if (!memory.ok()) return memory.status();
    OwnedMemory owned;
    owned.device_ = &device;
    owned.pinned_ = pinned;
    owned.memory_ = *memory;
    owned.size_ = bytes;
    return owned;
  }

  Device* device_ = nullptr;
  bool pinned_ = false;
  void* memory_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_OWNED_MEMORY_H_
