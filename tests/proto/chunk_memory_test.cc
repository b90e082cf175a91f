#include "proto/chunk_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

namespace kaon::proto {
namespace {

int64_t PageFaults() {
  rusage usage = {};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

void ReceiveChunks(int mebibytes = 8) {
  constexpr size_t kPieceBytes = 64 << 10;
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < mebibytes * 16; ++i) {
    pieces.push_back(std::make_unique<char[]>(kPieceBytes));
    memset(pieces.back().get(), i, kPieceBytes);
  }
}

int Arenas() {
  char* text = nullptr;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  EXPECT_EQ(malloc_info(0, file), 0);
  EXPECT_EQ(fclose(file), 0);
  int arenas = 0;
  const std::string_view info(text, size);
  for (size_t at = 0; (at = info.find("<heap nr=", at)) != info.npos; ++at) ++arenas;
  free(text);
  return arenas;
}

TEST(ChunkMemoryTest, AsManyArenasAsCpusForAnyNumberOfThreads) {
  BoundArenas();
  const int cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int more = cpus + 8;
  std::barrier all_alive(more);
  std::vector<std::thread> threads;
  for (int i = 0; i < more; ++i) {
    threads.emplace_back([&] {
      // The block is too large for a thread's own cache.
      const auto block = std::make_unique<char[]>(64 << 10);
      all_alive.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Arenas(), cpus);
}

// Runs in a thread, as a transport does; with a second arena the thread would not get main's.
TEST(ChunkMemoryTest, TheNextChunksTakeThePagesOfThoseBefore) {
  KeepChunkMemory();
  std::thread([] {
    ReceiveChunks();
    const int64_t before = PageFaults();
    for (int i = 0; i < 10; ++i) ReceiveChunks();
    // 20,480 faults if the allocator returned the pages each time.
    EXPECT_LT(PageFaults() - before, 1000);
  }).join();
}

}  // namespace
}  // namespace kaon::proto
