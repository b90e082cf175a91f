// Memory that a backend computes on as a tier, such as that of a device. Thread-safe. The creator
// of the TieredStore owns it.
#ifndef KAON_SERVER_TIER_DEVICE_TIER_H_
#define KAON_SERVER_TIER_DEVICE_TIER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "server/tier/memory_tier.h"

namespace kaon::tier {

// Granularity of an extent, in bytes: that of a device's allocations.
inline constexpr uint64_t kDeviceAlignmentBytes = 256;

class DeviceTier final : public MemoryTier {
 public:
  // `backend` outlives the tier.
  DeviceTier(kernels::Backend& backend, uint64_t capacity_bytes);
  ~DeviceTier() override;

 private:
  absl::StatusOr<kernels::Region> AllocateMemory(uint64_t bytes) override;
  void FreeMemory(kernels::Region memory) override;
  void CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) override;
  void CopyIn(absl::Span<const std::byte> from, kernels::Region to) override;

  kernels::Backend& backend_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_DEVICE_TIER_H_
