// Host memory for bulk data: aligned for vector instructions and for copies by a device. The caller
// owns what it allocates. Pure functions; any thread.
#ifndef KAON_KERNELS_CPU_HOST_MEMORY_H_
#define KAON_KERNELS_CPU_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace kaon::kernels {

// Alignment of an allocation: one cache line, one AVX-512 register.
inline constexpr uint64_t kHostAlignmentBytes = 64;

// Allocates `bytes` > 0 with undefined contents. Returns an empty span if the system refuses.
absl::Span<std::byte> AllocateHost(uint64_t bytes);

// Like AllocateHost; all bytes are zero and have pages, which are large ones if the system has any.
absl::Span<std::byte> AllocateZeroedHost(uint64_t bytes);

void FreeHost(absl::Span<std::byte> memory);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_HOST_MEMORY_H_
