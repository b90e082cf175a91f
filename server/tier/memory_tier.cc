#include "server/tier/memory_tier.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

MemoryTier::MemoryTier(Options options)
    : options_(std::move(options)), used_bytes_(options_.reserved_bytes) {}

void MemoryTier::FreeAll() {
  MutexLock lock(mu_);
  for (const auto& [id, memory] : extents_) FreeMemory(memory);
  extents_.clear();
}

absl::StatusOr<ExtentId> MemoryTier::Allocate(uint64_t bytes) {
  if (bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("0 bytes of ", options_.memory, " asked for, expecting > 0"));
  }
  MutexLock lock(mu_);
  // Compare before rounding up, which could overflow.
  const uint64_t rounded =
      bytes > options_.capacity_bytes - used_bytes_
          ? bytes
          : (bytes + options_.alignment - 1) / options_.alignment * options_.alignment;
  KAON_RETURN_IF_ERROR(TakeLocked(rounded));
  const absl::StatusOr<kernels::Region> memory = AllocateMemory(rounded);
  if (!memory.ok()) {
    used_bytes_ -= rounded;
    return absl::Status(memory.status().code(),
                        absl::StrCat(options_.memory, ": ", memory.status().message(), "; ",
                                     options_.capacity_bytes - used_bytes_, " are free of ",
                                     options_.capacity_bytes, " capacity: lower ", options_.flag));
  }
  const ExtentId id = next_extent_++;
  extents_.emplace(id, *memory);
  return id;
}

absl::Status MemoryTier::TakeLocked(uint64_t bytes) {
  const uint64_t free_bytes = options_.capacity_bytes - used_bytes_;
  if (bytes > free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.memory, ": ", bytes, " bytes needed, ", free_bytes,
                     " free = ", options_.capacity_bytes, " capacity - ", used_bytes_,
                     " in use: raise ", options_.flag, " or add shards"));
  }
  used_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status MemoryTier::Claim(uint64_t bytes) {
  MutexLock lock(mu_);
  return TakeLocked(bytes);
}

void MemoryTier::Release(uint64_t bytes) {
  MutexLock lock(mu_);
  CHECK_GE(used_bytes_, bytes) << "more is released than is in use";
  used_bytes_ -= bytes;
}

absl::Status MemoryTier::NoExtent(ExtentId extent) const {
  return absl::NotFoundError(absl::StrCat(options_.memory, " has no extent ", extent));
}

absl::Status MemoryTier::Free(ExtentId extent) {
  MutexLock lock(mu_);
  const auto found = extents_.find(extent);
  if (found == extents_.end()) return NoExtent(extent);
  used_bytes_ -= found->second.size();
  FreeMemory(found->second);
  extents_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<kernels::Region> MemoryTier::Memory(ExtentId extent) {
  MutexLock lock(mu_);
  const auto found = extents_.find(extent);
  if (found == extents_.end()) return NoExtent(extent);
  return found->second;
}

absl::StatusOr<kernels::Region> MemoryTier::Range(ExtentId extent, uint64_t offset, uint64_t size) {
  KAON_ASSIGN_OR_RETURN(const kernels::Region memory, Memory(extent));
  if (offset > memory.size() || size > memory.size() - offset) {
    return absl::OutOfRangeError(absl::StrCat("extent ", extent, ": ", size, " bytes from ", offset,
                                              " asked for, it has ", memory.size()));
  }
  return memory.Sub(offset, size);
}

absl::Status MemoryTier::Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) {
  KAON_ASSIGN_OR_RETURN(const kernels::Region range, Range(extent, offset, to.size()));
  if (!to.empty()) CopyOut(range, to);
  return absl::OkStatus();
}

absl::Status MemoryTier::Store(ExtentId extent, uint64_t offset, absl::Span<const std::byte> from) {
  KAON_ASSIGN_OR_RETURN(const kernels::Region range, Range(extent, offset, from.size()));
  if (!from.empty()) CopyIn(from, range);
  return absl::OkStatus();
}

uint64_t MemoryTier::used_bytes() const {
  MutexLock lock(mu_);
  return used_bytes_;
}

}  // namespace kaon::tier
