// Keeps what chunks were received in for the next ones. A transport allocates and frees memory for
// every chunk (a message of 1 MiB comes in about 17 pieces); the C library gives it back to the
// system as soon as 128 KiB are free, and each page of the next chunk is a page fault and is
// cleared anew. Settings of the process; called once from main, before there are threads. Giving
// back: any thread.
#ifndef KAON_PROTO_CHUNK_MEMORY_H_
#define KAON_PROTO_CHUNK_MEMORY_H_

#include <malloc.h>

#include <algorithm>
#include <thread>

namespace kaon::proto {

// Free memory that each of the C library's arenas keeps: the chunks of a few streams. What is kept
// is resident while Newton-Schulz has its matrices, too (docs/benchmarks.md, "Memory of a shard").
inline constexpr int kKeptBytes = 8 << 20;
// Larger blocks are the system's again once they are freed: tensors and buffers of files.
inline constexpr int kLargestKeptBytes = 4 << 20;

inline void KeepChunkMemory() {
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kLargestKeptBytes);
}

// What every arena keeps free is the system's again, until the next chunks: before something large
// is taken that they need not lie beside. Some milliseconds, and later as many page faults.
inline void GiveBackChunkMemory() { malloc_trim(0); }

// As many arenas as there are CPUs this process may run on, in place of eight for each, as every
// one keeps chunks of its own. For shards, whose memory is bounded: threads that all allocate much
// that is small wait for each other (docs/benchmarks.md, "The data plane").
inline void BoundArenas() {
  // 0 CPUs where their number is not known.
  mallopt(M_ARENA_MAX, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

}  // namespace kaon::proto

#endif  // KAON_PROTO_CHUNK_MEMORY_H_
