// Copies past the caches, for data that is written completely and not read soon: the stored cache
// line is not fetched from memory first. Pure functions; any thread.
#ifndef KAON_KERNELS_CPU_STREAMING_STORE_H_
#define KAON_KERNELS_CPU_STREAMING_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace kaon::kernels {

// Minimum size in bytes of an array to stream. The beginning of so long an array has left the
// second-level cache (2 MiB where it was measured) before its end is written. So streaming loses
// nothing.
inline constexpr uint64_t kLeastStreamedBytes = uint64_t{4} << 20;

// to[0 .. bytes) <- from[0 .. bytes), which must not overlap, at any alignment. Other threads see
// the copy once this thread has called EndStreaming.
inline void StreamTo(const void* from, size_t bytes, void* to) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
#if defined(__SSE__)
  // Bytes before the first address that is aligned for a whole vector.
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(target) % 16);
  std::memcpy(target, source, head);
  size_t i = head;
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_ps(reinterpret_cast<float*>(target + i),
                  _mm_loadu_ps(reinterpret_cast<const float*>(source + i)));
  }
  std::memcpy(target + i, source + i, bytes - i);
#else
  std::memcpy(target, source, bytes);
#endif
}

inline void EndStreaming() {
#if defined(__SSE__)
  _mm_sfence();
#endif
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_STREAMING_STORE_H_
