#include "server/tier/host_tier.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace kaon::tier {

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
    : MemoryTier({"host", "host memory", "--host-memory-bytes", capacity_bytes, reserved_bytes,
                  kHostAlignmentBytes}) {}

HostTier::~HostTier() { FreeAll(); }

absl::StatusOr<kernels::Region> HostTier::AllocateMemory(uint64_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kHostAlignmentBytes, bytes));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("the system refused ", bytes, " bytes"));
  }
  AskForLargePages(memory, bytes);
  std::memset(memory, 0, bytes);
  return kernels::Region(absl::MakeSpan(memory, bytes));
}

void HostTier::FreeMemory(kernels::Region memory) { std::free(memory.data()); }

void HostTier::CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) {
  std::memcpy(to.data(), from.data(), to.size());
}

void HostTier::CopyIn(absl::Span<const std::byte> from, kernels::Region to) {
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace kaon::tier
