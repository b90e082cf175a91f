#include "server/tier/unit_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

namespace kaon::tier {
namespace {

using disk::kBlockBytes;

TEST(UnitLayoutTest, BothVersionsAreOneRunOfTheMemory) {
  // 2 blocks of weights, 1 + 3 of state.
  const UnitLayout layout(kBlockBytes + 4, {10, 3 * kBlockBytes});
  EXPECT_EQ(layout.num_tensors(), 3u);
  EXPECT_EQ(layout.size(0), kBlockBytes + 4);
  EXPECT_EQ(layout.version_bytes(), 6 * kBlockBytes);
  EXPECT_EQ(layout.memory_bytes(), 8 * kBlockBytes);
  EXPECT_EQ(layout.version_in_memory(0), 0u);
  EXPECT_EQ(layout.version_in_memory(1), 2 * kBlockBytes);
  EXPECT_EQ(layout.in_memory(0, 0), 0u);
  EXPECT_EQ(layout.in_memory(1, 0), 6 * kBlockBytes);
  for (const int version : {0, 1}) {
    EXPECT_EQ(layout.in_memory(version, 1), 2 * kBlockBytes);
    EXPECT_EQ(layout.in_memory(version, 2), 3 * kBlockBytes);
  }
}

TEST(StagingPoolTest, ReusesMemoryOfTheSameSizeAndNeverHoldsMore) {
  const std::unique_ptr<kernels::Backend> backend = kernels::CreateBackend({}).value();
  StagingPool pool(*backend,
                   UnitMemory::BytesFor(4 * kBlockBytes) + UnitMemory::BytesFor(6 * kBlockBytes));
  UnitMemory four = **pool.Allocate(4 * kBlockBytes);
  std::optional<UnitMemory> six = *pool.Allocate(6 * kBlockBytes);
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(four.bytes().data()) % kBlockBytes, 0u);
  EXPECT_FALSE(pool.Allocate(kBlockBytes)->has_value());
  const std::byte* const place = four.bytes().data();
  pool.Release(std::move(four));
  four = **pool.Allocate(4 * kBlockBytes);
  EXPECT_EQ(four.bytes().data(), place);
  pool.Release(std::move(four));
  // The spare memory makes room.
  EXPECT_TRUE(pool.Allocate(3 * kBlockBytes)->has_value());
  EXPECT_FALSE(pool.Allocate(kBlockBytes)->has_value());
}

}  // namespace
}  // namespace kaon::tier
