#include "server/shard/gradients/sum_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/shard/device/shard_memory.h"
#include "tests/server/shard/gradients/swapped_sums.h"

namespace kaon::shard {
namespace {

class SumMemoryTest : public testing::Test {
 protected:
  SumMemoryTest() {
    options_.store = &memory_.store();
    options_.backend = &memory_.backend();
    options_.staging = &memory_.host();
    options_.swapped = &sums_.memory();
  }
  std::unique_ptr<SumMemory> Reserve(uint32_t id, bool is_swapped) {
    auto sum = SumMemory::Reserve(options_, id, "w", 6, is_swapped);
    EXPECT_TRUE(sum.ok()) << sum.status();
    return sum.ok() ? *std::move(sum) : nullptr;
  }

  ShardMemory memory_{1 << 20};
  SwappedSums sums_;
  GradientAccumulatorOptions options_;
};

TEST_F(SumMemoryTest, MemoryOfTheStoreIsThereWithoutAHold) {
  {
    const std::unique_ptr<SumMemory> sum = Reserve(1, false);
    EXPECT_EQ(sum->region().num_floats(), 6u);
    EXPECT_EQ(*sum->PinForWrite(), nullptr);
    memory_.Write(sum->region(), std::vector<float>(6, 3));
    sum->Discard();
    EXPECT_EQ(memory_.Floats(sum->region()), std::vector<float>(6, 3));
    EXPECT_FALSE(sum->swapped().has_value());
    // The journal reads a copy where the host cannot touch the sum.
    EXPECT_EQ(sum->CopyToStaging().empty(), !ShardMemory::is_device());
    EXPECT_GT(memory_.store().used_bytes(), 0u);
  }
  EXPECT_EQ(memory_.store().used_bytes(), 0u);
}

TEST_F(SumMemoryTest, SwappedMemoryKeepsItsAddressAndItsValues) {
  const std::unique_ptr<SumMemory> sum = Reserve(1, true);
  const std::unique_ptr<SumMemory> others[] = {Reserve(2, true), Reserve(3, true)};
  EXPECT_EQ(sum->region().num_floats(), 6u);
  EXPECT_EQ(memory_.store().used_bytes(), 0u);
  float* const values = reinterpret_cast<float*>(sum->region().data());
  {
    const absl::StatusOr<tier::PageHold> hold = sum->PinForWrite();
    ASSERT_TRUE(hold.ok());
    EXPECT_NE(*hold, nullptr);
    values[5] = 7;
  }
  // There is room for two.
  for (const auto& other : others) ASSERT_TRUE(other->PinForWrite().ok());
  const absl::StatusOr<tier::PageHold> hold = sum->Pin();
  ASSERT_TRUE(hold.ok());
  EXPECT_EQ(values[5], 7);
  EXPECT_EQ(sums_.memory().counters().written_bytes, 2 * disk::kBlockBytes);
}

TEST_F(SumMemoryTest, RefusesASumThatDoesNotFit) {
  const auto sum = SumMemory::Reserve(options_, 1, "w", 2000, true);
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kResourceExhausted) << sum.status();
}

}  // namespace
}  // namespace kaon::shard
