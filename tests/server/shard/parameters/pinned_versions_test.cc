#include "server/shard/parameters/pinned_versions.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/tensor.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

class PinnedVersionsTest : public testing::Test {
 protected:
  absl::Status Keep(const std::string& name, uint64_t first_step, uint64_t last_step) {
    auto copy = PinnedVersions::MakeCopy(first_step, last_step, 3, store_, name,
                                         [this](kernels::Region to) {
                                           memory_.backend().Copy(version_.region(), to);
                                           return absl::OkStatus();
                                         });
    if (copy.ok()) versions_.Keep(*std::move(copy));
    return copy.status();
  }

  // Room for two copies.
  ShardMemory memory_{ShardMemory::least_extent() * 2};
  tier::TieredStore& store_ = memory_.store();
  kernels::Tensor version_{memory_.backend(), std::vector<float>{1, 2, 3}};
  PinnedVersions versions_;
};

TEST_F(PinnedVersionsTest, HoldsWhatSomebodyReads) {
  versions_.Add(1, 5);
  versions_.Add(1, 5);
  versions_.Add(2, 7);
  EXPECT_TRUE(versions_.Holds(5, 5));
  EXPECT_TRUE(versions_.Holds(3, 6));
  EXPECT_FALSE(versions_.Holds(6, 6));
  versions_.Remove(1);
  EXPECT_FALSE(versions_.Holds(3, 6));
  EXPECT_TRUE(versions_.Holds(0, 9));
  versions_.Remove(9);
}

TEST_F(PinnedVersionsTest, ACopyStaysUntilItsLastReaderHasLeft) {
  versions_.Add(1, 5);
  versions_.Add(2, 6);
  ASSERT_TRUE(Keep("a", 5, 6).ok());
  versions_.Remove(1);
  EXPECT_EQ(memory_.Floats(versions_.Find(6).memory), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(versions_.Find(7).memory.empty());
  versions_.Remove(2);
  EXPECT_TRUE(versions_.Find(6).memory.empty());
  EXPECT_EQ(store_.used_bytes(), 0u);
}

// The copy is made without a lock.
TEST_F(PinnedVersionsTest, ACopyWhoseLastReaderHasLeftMeanwhileIsFreed) {
  ASSERT_TRUE(Keep("a", 5, 5).ok());
  EXPECT_TRUE(versions_.Find(5).memory.empty());
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(PinnedVersionsTest, NamesTheArithmeticOfACopyThatDoesNotFit) {
  versions_.Add(1, 5);
  versions_.Add(2, 6);
  ASSERT_TRUE(Keep("a", 5, 5).ok());
  ASSERT_TRUE(Keep("b", 6, 6).ok());
  const absl::Status status = Keep("c", 7, 7);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(versions_.Find(7).memory.empty());
  versions_.Clear();
  EXPECT_TRUE(versions_.Find(5).memory.empty());
  EXPECT_TRUE(versions_.Holds(5, 5));
  EXPECT_EQ(store_.used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::shard
