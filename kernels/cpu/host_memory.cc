#include "kernels/cpu/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>

namespace kaon::kernels {
namespace {

// Asks for large pages for the whole pages of an allocation, so that passes over gradients and
// state walk fewer page tables. This costs no memory, since all of it is written.
void AskForLargePages(absl::Span<std::byte> memory) {
  constexpr uint64_t kPageBytes = 4096;
  constexpr uint64_t kLargePageBytes = 2 << 20;
  if (memory.size() < 2 * kLargePageBytes) return;
  const uint64_t skipped =
      (kPageBytes - reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes) % kPageBytes;
  const uint64_t whole = (memory.size() - skipped) / kPageBytes * kPageBytes;
  // A system without large pages refuses; the memory still works, only slower.
  static_cast<void>(madvise(memory.data() + skipped, whole, MADV_HUGEPAGE));
}

}  // namespace

absl::Span<std::byte> AllocateHost(uint64_t bytes) {
  if (bytes > std::numeric_limits<uint64_t>::max() - kHostAlignmentBytes) return {};
  const uint64_t rounded =
      (bytes + kHostAlignmentBytes - 1) / kHostAlignmentBytes * kHostAlignmentBytes;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kHostAlignmentBytes, rounded));
  if (memory == nullptr) return {};
  return {memory, static_cast<size_t>(bytes)};
}

absl::Span<std::byte> AllocateZeroedHost(uint64_t bytes) {
  const absl::Span<std::byte> memory = AllocateHost(bytes);
  if (memory.empty()) return memory;
  AskForLargePages(memory);
  std::memset(memory.data(), 0, memory.size());
  return memory;
}

void FreeHost(absl::Span<std::byte> memory) { std::free(memory.data()); }

}  // namespace kaon::kernels
