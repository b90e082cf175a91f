#include "proto/chunk_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace kaon::proto {
namespace {

int64_t PageFaults() {
  rusage usage = {};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

void ReceiveChunks() {
  constexpr size_t kPieceBytes = 64 << 10;
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 8 * 16; ++i) {
    pieces.push_back(std::make_unique<char[]>(kPieceBytes));
    memset(pieces.back().get(), i, kPieceBytes);
  }
}

// As a transport's thread has it, in an arena of its own.
TEST(ChunkMemoryTest, TheNextChunksTakeThePagesOfThoseBefore) {
  KeepChunkMemory();
  std::thread([] {
    ReceiveChunks();
    const int64_t before = PageFaults();
    for (int i = 0; i < 10; ++i) ReceiveChunks();
    // 20,480 if they were given back each time.
    EXPECT_LT(PageFaults() - before, 1000);
  }).join();
}

}  // namespace
}  // namespace kaon::proto
