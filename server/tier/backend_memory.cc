#include "server/tier/backend_memory.h"

#include <cstddef>
#include <utility>

#include "absl/types/span.h"
#include "proto/status_macros.h"

namespace kaon::tier {

absl::StatusOr<BackendMemory> BackendMemory::Allocate(kernels::Backend& backend, uint64_t bytes) {
  if (backend.space() == kernels::Space::kHost) return AllocateStaging(backend, bytes);
  KAON_ASSIGN_OR_RETURN(const kernels::Region region, backend.Allocate(bytes));
  return BackendMemory(backend, region);
}

absl::StatusOr<BackendMemory> BackendMemory::AllocateStaging(kernels::Backend& backend,
                                                             uint64_t bytes) {
  KAON_ASSIGN_OR_RETURN(const absl::Span<std::byte> staging, backend.AllocateStaging(bytes));
  return BackendMemory(backend, staging);
}

BackendMemory::BackendMemory(BackendMemory&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)),
      region_(std::exchange(other.region_, kernels::Region())) {}

BackendMemory& BackendMemory::operator=(BackendMemory&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(region_, other.region_);
  return *this;
}

BackendMemory::~BackendMemory() {
  if (backend_ == nullptr) return;
  if (region_.space() == kernels::Space::kHost) {
    backend_->FreeStaging(region_.host_bytes());
  } else {
    backend_->Free(region_);
  }
}

}  // namespace kaon::tier
