#include "kernels/cuda/on_host/guarded_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kaon::kernels::cuda::on_host {
namespace {

TEST(GuardedMemoryTest, CountsWhatIsAllocated) {
  GuardedMemory memory("memory", 100);
  void* const first = memory.Allocate(60).value();
  EXPECT_EQ(memory.SizeOf(first), 60);
  EXPECT_EQ(memory.free_bytes(), 40);
  EXPECT_EQ(memory.Allocate(41).status().message(), "memory: needs 41 bytes, 40 of 100 are free");
  memory.Free(first);
  EXPECT_EQ(memory.free_bytes(), 100);
  memory.Reclaim();
}

TEST(GuardedMemoryTest, AcceptsEveryByteInside) {
  GuardedMemory memory("memory", 100);
  auto* const bytes = static_cast<std::byte*>(memory.Allocate(60).value());
  std::memset(bytes, 0, 60);
  memory.CheckInside(bytes, 60, "a read");
  memory.CheckInside(bytes + 59, 1, "a read");
  memory.CheckInside(bytes + 60, 0, "a read");
  memory.Free(bytes);
}

TEST(GuardedMemoryDeathTest, FindsWhatIsOutside) {
  GuardedMemory memory("memory", 100);
  auto* const bytes = static_cast<std::byte*>(memory.Allocate(60).value());
  EXPECT_DEATH(memory.CheckInside(bytes + 59, 2, "a read"), "a read: bytes 59 .. 61 of 60");
  EXPECT_DEATH(memory.CheckInside(bytes - 1, 1, "a read"), "a read");
  EXPECT_DEATH(
      {
        bytes[-1] = std::byte{0};
        memory.Free(bytes);
      },
      "wrote before an allocation of 60 bytes");
  EXPECT_DEATH(
      {
        bytes[60] = std::byte{0};
        memory.Free(bytes);
      },
      "wrote behind an allocation of 60 bytes");
  EXPECT_DEATH(memory.Free(bytes + 1), "not allocated");
  memory.Free(bytes);
}

TEST(GuardedMemoryDeathTest, FindsAWriteAfterTheFree) {
  GuardedMemory memory("memory", 100);
  auto* const bytes = static_cast<std::byte*>(memory.Allocate(60).value());
  memory.Free(bytes);
  EXPECT_DEATH(
      {
        bytes[3] = std::byte{0};
        memory.Reclaim();
      },
      "wrote a freed allocation of 60 bytes");
}

TEST(GuardedMemoryTest, KnowsTheAllocationsOfTheWholeProcess) {
  const GuardedMemory memory("device memory", 1000);
  const GuardedMemory other_kind("pinned memory", 1000);
  void* bytes = nullptr;
  {
    GuardedMemory of_another("device memory", 1000);
    bytes = *of_another.Allocate(60);
    memory.CheckInside(bytes, 60, "a read");
    EXPECT_DEATH(memory.CheckInside(bytes, 61, "a read"), "a read: bytes 0 .. 61 of 60");
    EXPECT_DEATH(other_kind.CheckInside(bytes, 60, "a read"), "is not pinned memory");
  }
  EXPECT_DEATH(memory.CheckInside(bytes, 60, "a read"), "is not device memory");
}

}  // namespace
}  // namespace kaon::kernels::cuda::on_host
