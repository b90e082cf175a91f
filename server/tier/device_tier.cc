#include "server/tier/device_tier.h"

#include "absl/strings/str_cat.h"

namespace kaon::tier {

DeviceTier::DeviceTier(kernels::Backend& backend, uint64_t capacity_bytes)
    : MemoryTier({"device", absl::StrCat("device memory of ", backend.memory_tier()),
                  "--device-memory-bytes", capacity_bytes, 0, kDeviceAlignmentBytes}),
      backend_(backend) {}

DeviceTier::~DeviceTier() { FreeAll(); }

absl::StatusOr<kernels::Region> DeviceTier::AllocateMemory(uint64_t bytes) {
  return backend_.Allocate(bytes);
}

void DeviceTier::FreeMemory(kernels::Region memory) { backend_.Free(memory); }

void DeviceTier::CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) {
  backend_.CopyOut(from, to);
}

void DeviceTier::CopyIn(absl::Span<const std::byte> from, kernels::Region to) {
  backend_.CopyIn(from, to);
}

}  // namespace kaon::tier
