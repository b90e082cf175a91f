// Host memory as a tier. Extents are aligned for vector instructions, and code may use them in
// place. Thread-safe. The creator of the TieredStore owns it.
#ifndef KAON_SERVER_TIER_HOST_TIER_H_
#define KAON_SERVER_TIER_HOST_TIER_H_

#include <map>
#include <memory>

#include "kernels/mutex.h"
#include "server/tier/state_tier.h"

namespace kaon::tier {

// Alignment and granularity of an extent: one cache line, one AVX-512 register.
inline constexpr size_t kHostAlignmentBytes = 64;

class HostTier : public StateTier {
 public:
  // `reserved_bytes` <= `capacity_bytes` count as used for the lifetime of the tier.
  explicit HostTier(uint64_t capacity_bytes, uint64_t reserved_bytes = 0);

  absl::string_view name() const override { return "host"; }
  absl::StatusOr<ExtentId> Allocate(uint64_t bytes) override;
  absl::Status Free(ExtentId extent) override;
  absl::Status Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) override;
  absl::Status Store(ExtentId extent, uint64_t offset, absl::Span<const std::byte> from) override;
  uint64_t capacity_bytes() const override { return capacity_bytes_; }
  uint64_t used_bytes() const override;

  // Returns the extent's own memory, valid until Free. NOT_FOUND if it is not allocated.
  absl::StatusOr<absl::Span<std::byte>> Memory(ExtentId extent);

  // Counts `bytes` as used that the caller allocates elsewhere. RESOURCE_EXHAUSTED states the
  // arithmetic.
  absl::Status Claim(uint64_t bytes);
  // Returns claimed `bytes` to the tier.
  void Release(uint64_t bytes);

 private:
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  struct Extent {
    std::unique_ptr<std::byte, FreeMemory> memory;
    uint64_t bytes = 0;
  };

  absl::Status TakeLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<absl::Span<std::byte>> Range(ExtentId extent, uint64_t offset, uint64_t size);

  const uint64_t capacity_bytes_;

  mutable Mutex mu_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mu_);
  ExtentId next_extent_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ExtentId, Extent> extents_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_HOST_TIER_H_
