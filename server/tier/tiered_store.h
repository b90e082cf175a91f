// Named tensors over a tier. Code that computes pins a tensor and gets its memory. In this version
// the backend computes on the memory of the tier, so pinning moves nothing. Thread-safe. The
// shard's composition root owns the store, which must outlive its pins.
#ifndef KAON_SERVER_TIER_TIERED_STORE_H_
#define KAON_SERVER_TIER_TIERED_STORE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/mutex.h"
#include "kernels/region.h"
#include "server/tier/state_tier.h"

namespace kaon::tier {

class TieredStore;

// Access to the memory of one tensor for the lifetime of this object. Movable.
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept;
  Pin& operator=(Pin&& other) noexcept;
  ~Pin();

  // The memory of the tensor, in the space of the tier.
  kernels::Region region() const { return region_; }

 private:
  friend class TieredStore;
  Pin(TieredStore* store, std::string name, kernels::Region region);
  void Release();

  // Null when empty.
  TieredStore* store_ = nullptr;
  std::string name_;
  kernels::Region region_;
};

class TieredStore {
 public:
  // `tier` must outlive the store.
  explicit TieredStore(StateTier& tier);
  // CHECKs that no pin is left.
  ~TieredStore();

  // Allocates a zeroed tensor of `num_elements` fp32. ALREADY_EXISTS for a name in use;
  // RESOURCE_EXHAUSTED names the tensor and states the arithmetic.
  absl::Status Allocate(absl::string_view name, uint64_t num_elements);
  // Releases a tensor. NOT_FOUND, or FAILED_PRECONDITION while it is pinned.
  absl::Status Free(absl::string_view name);
  // Pins a tensor, which may have several pins. NOT_FOUND.
  absl::StatusOr<kaon::tier::Pin> Pin(absl::string_view name);
  // Announces that the tensor will be pinned soon. NOT_FOUND. Does nothing while
  // pinning moves nothing.
  absl::Status Prefetch(absl::string_view name);

  // Forward to the tier, for memory that steps use in addition to the tensors.
  absl::Status Claim(uint64_t bytes) { return tier_.Claim(bytes); }
  void Release(uint64_t bytes) { tier_.Release(bytes); }

  uint64_t capacity_bytes() const { return tier_.capacity_bytes(); }
  uint64_t used_bytes() const { return tier_.used_bytes(); }

 private:
  friend class kaon::tier::Pin;
  struct Tensor {
    ExtentId extent = 0;
    uint64_t bytes = 0;
    int pins = 0;
  };

  void Unpin(const std::string& name);

  StateTier& tier_;

  Mutex mu_;
  std::map<std::string, Tensor, std::less<>> tensors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_TIERED_STORE_H_
