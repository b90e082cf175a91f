#include "server/shard/gradient_appender.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"
#include "tests/server/shard/recorded_host.h"

namespace kaon::shard {
namespace {

journal::PrepareRecord PrepareOf(uint64_t generation) {
  journal::PrepareRecord prepare;
  prepare.generation = generation;
  return prepare;
}

class GradientAppenderTest : public AccumulatorFixture {
 protected:
  GradientAppenderTest() { Begin(); }

  void PushBoth() {
    PushAll(Open(0), 1);
    PushAll(Open(1), 3);
  }

  RecordedHost shard_host_;
  GradientAppender gradients_{*accumulator_, shard_host_};
};

TEST_F(GradientAppenderTest, APrepareFollowsAllOfItsGradientAndAppendsItOnce) {
  PushBoth();
  gradients_.OnParameterFolded(1, kB);
  EXPECT_EQ(shard_host_.appended, std::vector<uint32_t>{kB});
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  gradients_.BeforeAppend(PrepareOf(1));
  EXPECT_EQ(shard_host_.appended, (std::vector<uint32_t>{kB, kW}));
  // The plan has a new ballot, the gradient is the same.
  gradients_.BeforeAppend(PrepareOf(1));
  EXPECT_EQ(shard_host_.appended.size(), 2u);
}

TEST_F(GradientAppenderTest, OtherEntriesAppendNoGradient) {
  PushBoth();
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  gradients_.BeforeAppend(journal::PromiseRecord());
  gradients_.BeforeAppend(journal::DecisionRecord());
  EXPECT_TRUE(shard_host_.appended.empty());
}

TEST_F(GradientAppenderTest, WithdrawsSlicesThatNoPrepareFollowed) {
  gradients_.Withdraw();
  EXPECT_EQ(shard_host_.withdrawals, 0);
  PushBoth();
  gradients_.OnParameterFolded(1, kW);
  gradients_.Withdraw();
  gradients_.Withdraw();
  EXPECT_EQ(shard_host_.withdrawals, 1);
}

TEST_F(GradientAppenderTest, WithdrawsNothingAfterThePrepare) {
  PushBoth();
  gradients_.OnParameterFolded(1, kW);
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  gradients_.BeforeAppend(PrepareOf(1));
  gradients_.Withdraw();
  EXPECT_EQ(shard_host_.withdrawals, 0);
}

TEST_F(GradientAppenderTest, AReplayedPrepareHasItsGradientInTheJournal) {
  PushBoth();
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  gradients_.OnReplayed(1);
  gradients_.BeforeAppend(PrepareOf(1));
  EXPECT_TRUE(shard_host_.appended.empty());
}

}  // namespace
}  // namespace kaon::shard
