#include "server/tier/host_tier.h"

#include <glog/logging.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/host_memory.h"

namespace kaon::tier {

HostTier::HostTier(uint64_t capacity_bytes, uint64_t reserved_bytes)
    : MemoryTier({"host", "host memory", "--host-memory-bytes", capacity_bytes, reserved_bytes,
                  kHostAlignmentBytes}) {}

HostTier::HostTier(kernels::Backend& backend, uint64_t capacity_bytes, uint64_t reserved_bytes)
    : MemoryTier({"host", "host memory", "--host-memory-bytes", capacity_bytes, reserved_bytes,
                  kHostAlignmentBytes}),
      backend_(&backend) {
  CHECK(backend.space() == kernels::Space::kHost);
}

HostTier::~HostTier() { FreeAll(); }

absl::StatusOr<kernels::Region> HostTier::AllocateMemory(uint64_t bytes) {
  if (backend_ != nullptr) return backend_->Allocate(bytes);
  const absl::Span<std::byte> memory = kernels::AllocateZeroedHost(bytes);
  if (!memory.empty()) return kernels::Region(memory);
  return absl::ResourceExhaustedError(absl::StrCat("the system refused ", bytes, " bytes"));
}

void HostTier::FreeMemory(kernels::Region memory) {
  if (backend_ != nullptr) return backend_->Free(memory);
  kernels::FreeHost(memory.host_bytes());
}

void HostTier::CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) {
  std::memcpy(to.data(), from.data(), to.size());
}

void HostTier::CopyIn(absl::Span<const std::byte> from, kernels::Region to) {
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace kaon::tier
