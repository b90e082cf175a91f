#include "proto/shm_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace kaon::proto {
namespace {

constexpr size_t kRingBytes = 64 << 10;

Descriptor MemoryOf(size_t bytes, int seals) {
  Descriptor memory(memfd_create("test", MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memory.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(ShmRegionTest, BothSidesSeeTheSameRings) {
  const auto ours = ShmRegion::Create(kRingBytes).value();
  const auto theirs = ShmRegion::Open(Descriptor(dup(ours->descriptor()))).value();
  EXPECT_NE(ours->requests().bytes, theirs->requests().bytes);
  EXPECT_EQ(theirs->requests().capacity, kRingBytes);
  std::memcpy(theirs->requests().bytes, "up", 2);
  std::memcpy(theirs->responses().bytes, "down", 4);
  theirs->responses().places->written = 5;
  EXPECT_EQ(std::memcmp(ours->requests().bytes, "up", 2), 0);
  EXPECT_EQ(std::memcmp(ours->responses().bytes, "down", 4), 0);
  EXPECT_EQ(ours->responses().places->written, 5u);
}

TEST(ShmRegionTest, ARingGoesOnAtItsBeginning) {
  const auto region = ShmRegion::Create(kRingBytes).value();
  for (const RingMemory& ring : {region->requests(), region->responses()}) {
    std::memcpy(ring.bytes + kRingBytes - 2, "abcd", 4);
    EXPECT_EQ(std::memcmp(ring.bytes, "cd", 2), 0);
  }
}

TEST(ShmRegionTest, NobodyCanChangeItsSizeOrItsSeals) {
  const auto region = ShmRegion::Create(kRingBytes).value();
  EXPECT_NE(ftruncate(region->descriptor(), 0), 0);
  EXPECT_NE(ftruncate(region->descriptor(), 1 << 30), 0);
  EXPECT_NE(fcntl(region->descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(ShmRegionTest, RefusesMemoryThatCanShrink) {
  const auto opened = ShmRegion::Open(MemoryOf(4096 + 2 * kRingBytes, F_SEAL_GROW | F_SEAL_SEAL));
  EXPECT_EQ(opened.status().message(), "shared memory: it is not sealed");
  EXPECT_EQ(ShmRegion::Open(Descriptor(::open("/dev/null", O_RDWR))).status().message(),
            "shared memory: it is not sealed");
}

TEST(ShmRegionTest, RefusesSizesThatNoRegionHas) {
  for (const size_t bytes : {size_t{0}, size_t{4095}, size_t{4096}, 4096 + 2 * kRingBytes + 1,
                             4096 + 3 * kRingBytes, size_t{4096} + (size_t{256} << 20)}) {
    const auto opened = ShmRegion::Open(MemoryOf(bytes, kSeals));
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(ShmRegionTest, RefusesAnotherVersion) {
  EXPECT_EQ(ShmRegion::Open(MemoryOf(4096 + 2 * kRingBytes, kSeals)).status().message(),
            "shared memory: it is of another version");
}

}  // namespace
}  // namespace kaon::proto
