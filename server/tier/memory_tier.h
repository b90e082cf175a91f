// Memory as a tier: extents that code uses in place, within a budget. HostTier and DeviceTier
// allocate them. Thread-safe. The creator of the TieredStore owns it.
#ifndef KAON_SERVER_TIER_MEMORY_TIER_H_
#define KAON_SERVER_TIER_MEMORY_TIER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/mutex.h"
#include "server/tier/state_tier.h"

namespace kaon::tier {

class MemoryTier : public StateTier {
 public:
  absl::string_view name() const override { return options_.name; }
  absl::StatusOr<ExtentId> Allocate(uint64_t bytes) override;
  absl::Status Free(ExtentId extent) override;
  absl::StatusOr<kernels::Region> Memory(ExtentId extent) override;
  absl::Status Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) override;
  absl::Status Store(ExtentId extent, uint64_t offset, absl::Span<const std::byte> from) override;
  absl::Status Claim(uint64_t bytes) override;
  void Release(uint64_t bytes) override;
  uint64_t capacity_bytes() const override { return options_.capacity_bytes; }
  uint64_t used_bytes() const override;

 protected:
  struct Options {
    // Name of the tier, of its memory in messages, and of the flag that sets the capacity.
    std::string name;
    std::string memory;
    std::string flag;
    uint64_t capacity_bytes = 0;
    // Bytes <= `capacity_bytes` that count as used for the lifetime of the tier.
    uint64_t reserved_bytes = 0;
    // Granularity of an extent in bytes.
    uint64_t alignment = 1;
  };

  explicit MemoryTier(Options options);

  // Frees all extents. The destructor of every subclass calls it.
  void FreeAll();

 private:
  // Allocates zeroed, aligned memory. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<kernels::Region> AllocateMemory(uint64_t bytes) = 0;
  virtual void FreeMemory(kernels::Region memory) = 0;
  virtual void CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) = 0;
  virtual void CopyIn(absl::Span<const std::byte> from, kernels::Region to) = 0;

  absl::Status TakeLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<kernels::Region> Range(ExtentId extent, uint64_t offset, uint64_t size);
  absl::Status NoExtent(ExtentId extent) const;

  const Options options_;

  mutable Mutex mu_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_);
  ExtentId next_extent_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ExtentId, kernels::Region> extents_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_MEMORY_TIER_H_
