// Stores past the caches, for what is written whole and not read soon: a line that is stored so is
// not fetched from memory first. Pure functions; any thread.
#ifndef KAON_KERNELS_STREAMING_STORE_H_
#define KAON_KERNELS_STREAMING_STORE_H_

#include <algorithm>
#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace kaon::kernels {

// Of arrays so long the beginning has left the second cache when the end is written (2 MiB where it
// was measured): nobody finds it there, whichever way it was stored.
inline constexpr int64_t kLeastStreamedElements = int64_t{1} << 20;

// The address of a whole vector; any `to` will do where there are no such stores.
inline bool CanStreamTo(const float* to) { return reinterpret_cast<uintptr_t>(to) % 16 == 0; }

// to[0 .. n) <- from[0 .. n), which are apart; both addresses CanStreamTo. Other threads see it once
// this one has called EndStreaming.
inline void StreamTo(const float* from, int64_t n, float* to) {
  int64_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= n; i += 4) _mm_stream_ps(to + i, _mm_load_ps(from + i));
#endif
  std::copy(from + i, from + n, to + i);
}

inline void EndStreaming() {
#if defined(__SSE__)
  _mm_sfence();
#endif
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_STREAMING_STORE_H_
