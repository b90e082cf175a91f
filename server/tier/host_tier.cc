#include "server/tier/host_tier.h"

#include <glog/logging.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::tier {

void HostTier::FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

namespace {

// Asks for large pages for the whole pages of an allocation, so that passes over gradients and
// state walk fewer page tables. This costs no memory, since all of it is written.
void AskForLargePages(std::byte* memory, uint64_t bytes) {
  constexpr uint64_t kPageBytes = 4096;
  constexpr uint64_t kLargePageBytes = 2 << 20;
  if (bytes < 2 * kLargePageBytes) return;
  const uint64_t skipped =
      (kPageBytes - reinterpret_cast<uintptr_t>(memory) % kPageBytes) % kPageBytes;
  const uint64_t whole = (bytes - skipped) / kPageBytes * kPageBytes;
  // A system without large pages refuses; the memory still works, only slower.
  static_cast<void>(madvise(memory + skipped, whole, MADV_HUGEPAGE));
}

}  // namespace

HostTier::HostTier(uint64_t capacity_bytes, uint64_t reserved_bytes)
    : capacity_bytes_(capacity_bytes), used_bytes_(reserved_bytes) {}

absl::StatusOr<ExtentId> HostTier::Allocate(uint64_t bytes) {
  if (bytes == 0)
    return absl::InvalidArgumentError("0 bytes of host memory asked for, expecting > 0");
  MutexLock lock(mu_);
  // Compare before rounding up, which could overflow.
  const uint64_t rounded =
      bytes > capacity_bytes_ - used_bytes_
          ? bytes
          : (bytes + kHostAlignmentBytes - 1) / kHostAlignmentBytes * kHostAlignmentBytes;
  KAON_RETURN_IF_ERROR(TakeLocked(rounded));
  Extent extent;
  extent.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kHostAlignmentBytes, rounded)));
  if (extent.memory == nullptr) {
    used_bytes_ -= rounded;
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory: the system refused ", rounded, " bytes, ",
                     capacity_bytes_ - used_bytes_, " are free of ", capacity_bytes_, " capacity"));
  }
  AskForLargePages(extent.memory.get(), rounded);
  extent.bytes = rounded;
  std::memset(extent.memory.get(), 0, rounded);
  const ExtentId id = next_extent_++;
  extents_.emplace(id, std::move(extent));
  return id;
}

absl::Status HostTier::TakeLocked(uint64_t bytes) {
  const uint64_t free_bytes = capacity_bytes_ - used_bytes_;
  if (bytes > free_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("host memory: ", bytes, " bytes needed, ",
                                                     free_bytes, " free = ", capacity_bytes_,
                                                     " capacity - ", used_bytes_, " in use"));
  }
  used_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status HostTier::Claim(uint64_t bytes) {
  MutexLock lock(mu_);
  return TakeLocked(bytes);
}

void HostTier::Release(uint64_t bytes) {
  MutexLock lock(mu_);
  CHECK_GE(used_bytes_, bytes) << "more is released than is in use";
  used_bytes_ -= bytes;
}

absl::Status HostTier::Free(ExtentId extent) {
  MutexLock lock(mu_);
  const auto found = extents_.find(extent);
  if (found == extents_.end())
    return absl::NotFoundError(absl::StrCat("host memory has no extent ", extent));
  used_bytes_ -= found->second.bytes;
  extents_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<std::byte>> HostTier::Memory(ExtentId extent) {
  MutexLock lock(mu_);
  const auto found = extents_.find(extent);
  if (found == extents_.end())
    return absl::NotFoundError(absl::StrCat("host memory has no extent ", extent));
  return absl::MakeSpan(found->second.memory.get(), found->second.bytes);
}

absl::StatusOr<absl::Span<std::byte>> HostTier::Range(ExtentId extent, uint64_t offset,
                                                      uint64_t size) {
  const absl::StatusOr<absl::Span<std::byte>> memory = Memory(extent);
  if (!memory.ok()) return memory.status();
  if (offset > memory->size() || size > memory->size() - offset) {
    return absl::OutOfRangeError(absl::StrCat("extent ", extent, ": ", size, " bytes from ", offset,
                                              " asked for, it has ", memory->size()));
  }
  return memory->subspan(offset, size);
}

absl::Status HostTier::Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) {
  const absl::StatusOr<absl::Span<std::byte>> range = Range(extent, offset, to.size());
  if (!range.ok()) return range.status();
  if (!to.empty()) std::memcpy(to.data(), range->data(), to.size());
  return absl::OkStatus();
}

absl::Status HostTier::Store(ExtentId extent, uint64_t offset, absl::Span<const std::byte> from) {
  const absl::StatusOr<absl::Span<std::byte>> range = Range(extent, offset, from.size());
  if (!range.ok()) return range.status();
  if (!from.empty()) std::memcpy(range->data(), from.data(), from.size());
  return absl::OkStatus();
}

uint64_t HostTier::used_bytes() const {
  MutexLock lock(mu_);
  return used_bytes_;
}

}  // namespace kaon::tier
