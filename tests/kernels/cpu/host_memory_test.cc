#include "kernels/cpu/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kaon::kernels {
namespace {

// The sizes are around a cache line, a page, and the least size that gets large pages.
TEST(HostMemoryTest, IsAlignedAndZeroAgainAfterItWasFreed) {
  for (const uint64_t bytes : {1, 63, 64, 65, 4097, (4 << 20) + 4095}) {
    for (int turn = 0; turn < 2; ++turn) {
      const absl::Span<std::byte> memory = AllocateZeroedHost(bytes);
      ASSERT_EQ(memory.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kHostAlignmentBytes, 0u);
      EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), memory.size()) << bytes;
      std::fill(memory.begin(), memory.end(), std::byte{0xff});
      FreeHost(memory);
    }
  }
}

TEST(HostMemoryTest, NothingCanHaveAllAddresses) {
  EXPECT_TRUE(AllocateHost(std::numeric_limits<uint64_t>::max()).empty());
}

}  // namespace
}  // namespace kaon::kernels
