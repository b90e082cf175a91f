// Makes the C library keep the memory of received chunks for the next chunks. A transport allocates
// and frees memory for every chunk; a message of 1 MiB arrives in about 17 pieces. By default the C
// library returns memory to the system as soon as 128 KiB are free. Then each page of the next
// chunk causes a page fault and is cleared again.
// KeepChunkMemory and BoundArenas set options of the process: main calls them once, before it
// starts threads.
#ifndef KAON_PROTO_CHUNK_MEMORY_H_
#define KAON_PROTO_CHUNK_MEMORY_H_

#include <malloc.h>

#include <algorithm>
#include <thread>

namespace kaon::proto {

// Free memory in bytes that each arena of the C library keeps: the chunks of a few streams. It
// stays resident while Newton-Schulz has its matrices (docs/benchmarks.md, "Memory of a shard").
inline constexpr int kKeptBytes = 8 << 20;
// Larger blocks, such as tensors and file buffers, return to the system once they are freed.
inline constexpr int kLargestKeptBytes = 4 << 20;

inline void KeepChunkMemory() {
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kLargestKeptBytes);
}

// Limits the number of arenas to the CPUs of the process; the default is eight per CPU. Each arena
// keeps chunks, and the memory of a shard is bounded. The price: threads that all make many small
// allocations wait for each other (docs/benchmarks.md, "The data plane").
inline void BoundArenas() {
  // Returns 0 if the number of CPUs is unknown.
  mallopt(M_ARENA_MAX, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

}  // namespace kaon::proto

#endif  // KAON_PROTO_CHUNK_MEMORY_H_
