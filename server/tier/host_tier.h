// Host memory as a tier. Extents are aligned for vector instructions. Thread-safe. The creator of
// the TieredStore owns it.
#ifndef KAON_SERVER_TIER_HOST_TIER_H_
#define KAON_SERVER_TIER_HOST_TIER_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/host_memory.h"
#include "server/tier/memory_tier.h"

namespace kaon::tier {

// Granularity of an extent in bytes.
inline constexpr uint64_t kHostAlignmentBytes = kernels::kHostAlignmentBytes;

// Returns the bytes that an extent of `bytes` takes.
inline uint64_t HostExtentBytes(uint64_t bytes) {
  return (bytes + kHostAlignmentBytes - 1) / kHostAlignmentBytes * kHostAlignmentBytes;
}

class HostTier final : public MemoryTier {
 public:
  // `reserved_bytes` <= `capacity_bytes` count as used for the lifetime of the tier.
  explicit HostTier(uint64_t capacity_bytes, uint64_t reserved_bytes = 0);
  // Memory of `backend`, which computes on the host's and outlives the tier.
  HostTier(kernels::Backend& backend, uint64_t capacity_bytes, uint64_t reserved_bytes);
  ~HostTier() override;

 private:
  absl::StatusOr<kernels::Region> AllocateMemory(uint64_t bytes) override;
  void FreeMemory(kernels::Region memory) override;
  void CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) override;
  void CopyIn(absl::Span<const std::byte> from, kernels::Region to) override;

  // Null: the system's memory.
  kernels::Backend* const backend_ = nullptr;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_HOST_TIER_H_
