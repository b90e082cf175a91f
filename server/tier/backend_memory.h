// Memory of a backend that holds no state: a copy, or staging between host and device. Its contents
// are undefined. Movable; its owner frees it. One thread at a time.
#ifndef KAON_SERVER_TIER_BACKEND_MEMORY_H_
#define KAON_SERVER_TIER_BACKEND_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/region.h"

namespace kaon::tier {

class BackendMemory {
 public:
  // Allocates memory that `backend` computes on, not zeroed if it is the host's. `backend` outlives
  // the result. RESOURCE_EXHAUSTED.
  static absl::StatusOr<BackendMemory> Allocate(kernels::Backend& backend, uint64_t bytes);
  // Allocates host memory that copies to and from the backend's space are fastest with.
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<BackendMemory> AllocateStaging(kernels::Backend& backend, uint64_t bytes);

  BackendMemory() = default;
  BackendMemory(BackendMemory&& other) noexcept;
  BackendMemory& operator=(BackendMemory&& other) noexcept;
  ~BackendMemory();

  // Empty before an allocation.
  kernels::Region region() const { return region_; }

 private:
  BackendMemory(kernels::Backend& backend, kernels::Region region)
      : backend_(&backend), region_(region) {}

  // Null when empty.
  kernels::Backend* backend_ = nullptr;
  kernels::Region region_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_BACKEND_MEMORY_H_
