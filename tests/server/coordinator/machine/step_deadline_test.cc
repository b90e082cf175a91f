#include "server/coordinator/machine/step_deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(10);

class StepDeadlineTest : public testing::Test {
 protected:
  StepDeadlineTest() { deadline_.OnStep(1, 7); }
  std::vector<uint32_t> Wait(absl::Duration time, const std::vector<uint32_t>& ranks,
                             bool in_round = false) {
    return deadline_.Tick(time, ranks, in_round, kPatience);
  }
  std::vector<uint32_t> WaitInRound(absl::Duration time, const std::vector<uint32_t>& ranks) {
    return Wait(time, ranks, /*in_round=*/true);
  }

  StepDeadline deadline_;
};

TEST_F(StepDeadlineTest, NamesWhoeverWasWaitedForSoLongInOneStep) {
  EXPECT_THAT(Wait(absl::Seconds(6), {1, 2}), IsEmpty());
  EXPECT_THAT(Wait(absl::Seconds(4), {1}), ElementsAre(1));
  EXPECT_THAT(WaitInRound(absl::Seconds(3), {2}), IsEmpty());
  EXPECT_THAT(WaitInRound(absl::Seconds(1), {2}), ElementsAre(2));
  deadline_.OnStep(1, 7);
  EXPECT_THAT(Wait(absl::ZeroDuration(), {1}), ElementsAre(1));
  deadline_.OnStep(1, 8);
  EXPECT_THAT(Wait(absl::Seconds(9), {1}), IsEmpty());
}

TEST_F(StepDeadlineTest, BlamesTheLowestRankOfAllShards) {
  EXPECT_EQ(deadline_.Owing(), std::nullopt);
  deadline_.OnAwaited(0, {});
  EXPECT_EQ(deadline_.Owing(), std::nullopt);
  deadline_.OnAwaited(0, {2, 3});
  deadline_.OnAwaited(1, {1, 3});
  EXPECT_EQ(deadline_.Owing(), 1u);
  deadline_.OnAwaited(1, {3});
  EXPECT_EQ(deadline_.Owing(), 2u);
  // Nobody knows yet of another round.
  deadline_.OnRound();
  EXPECT_EQ(deadline_.Owing(), std::nullopt);
}

// The workers push once more, and need as long again.
TEST_F(StepDeadlineTest, AnotherRoundBeginsTheTimeOfItsGradientsAnew) {
  EXPECT_THAT(Wait(absl::Seconds(4), {1}), IsEmpty());
  EXPECT_THAT(WaitInRound(absl::Seconds(5), {1}), IsEmpty());
  deadline_.OnRound();
  EXPECT_THAT(WaitInRound(absl::Seconds(5), {1}), IsEmpty());
  // The time without a begin stays.
  EXPECT_THAT(WaitInRound(absl::Seconds(1), {1}), ElementsAre(1));
  deadline_.Reset();
  EXPECT_THAT(WaitInRound(absl::Seconds(9), {1}), IsEmpty());
}

// A worker may restart, and costs the others one round.
TEST_F(StepDeadlineTest, OneRestartIsFree) {
  EXPECT_THAT(WaitInRound(absl::Seconds(9), {1}), IsEmpty());
  deadline_.OnRejoin(2);
  EXPECT_THAT(Wait(absl::Seconds(9), {2}), IsEmpty());
  deadline_.OnRound();
  EXPECT_THAT(WaitInRound(absl::Seconds(9), {1}), IsEmpty());
  EXPECT_THAT(WaitInRound(absl::Seconds(1), {1}), ElementsAre(1));
}

TEST_F(StepDeadlineTest, ForgetsWhatAShardSaidLongAgo) {
  deadline_.OnAwaited(0, {1});
  WaitInRound(absl::Seconds(2), {});
  EXPECT_EQ(deadline_.Owing(), 1u);
  WaitInRound(absl::Milliseconds(100), {});
  EXPECT_EQ(deadline_.Owing(), std::nullopt);
}

// Rank 2 lets nobody finish: each time that rank 1 pushes, it joins anew.
TEST_F(StepDeadlineTest, WhoeverEndsRoundsAgainAndAgainIsToBlameForThem) {
  for (int seconds = 0; seconds < 11; ++seconds) {
    ASSERT_THAT(WaitInRound(absl::Seconds(1), {1}), IsEmpty()) << seconds;
    deadline_.OnRejoin(2);
    deadline_.OnRound();
  }
  EXPECT_THAT(WaitInRound(absl::ZeroDuration(), {1}), ElementsAre(2));
}

TEST_F(StepDeadlineTest, ALostRankThatJoinsAgainBeginsAnew) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(WaitInRound(absl::Seconds(6), {1}), IsEmpty());
    deadline_.OnRejoin(2);
  }
  EXPECT_THAT(Wait(absl::Seconds(4), {2}), ElementsAre(2));
  deadline_.OnLost(2);
  EXPECT_THAT(Wait(absl::Seconds(9), {2}), IsEmpty());
  // Its first restart is free once more.
  EXPECT_THAT(WaitInRound(absl::Seconds(9), {1}), IsEmpty());
  deadline_.OnRejoin(2);
  EXPECT_THAT(Wait(absl::ZeroDuration(), {2}), IsEmpty());
  EXPECT_THAT(Wait(absl::Seconds(1), {2}), ElementsAre(2));
}

TEST_F(StepDeadlineTest, AsksMoreOftenIfPatienceIsShort) {
  deadline_.Tick(absl::Milliseconds(200), {}, /*in_round=*/true, absl::Seconds(2));
  EXPECT_TRUE(deadline_.ShouldAsk());
  deadline_.Tick(absl::Milliseconds(100), {}, /*in_round=*/true, absl::Seconds(2));
  EXPECT_FALSE(deadline_.ShouldAsk());
}

TEST_F(StepDeadlineTest, AsksOnceASecondOfARound) {
  EXPECT_FALSE(deadline_.ShouldAsk());
  Wait(absl::Seconds(5), {1});
  EXPECT_FALSE(deadline_.ShouldAsk());
  WaitInRound(absl::Milliseconds(900), {});
  EXPECT_FALSE(deadline_.ShouldAsk());
  WaitInRound(absl::Milliseconds(100), {});
  EXPECT_TRUE(deadline_.ShouldAsk());
  EXPECT_FALSE(deadline_.ShouldAsk());
  WaitInRound(absl::Seconds(1), {});
  EXPECT_TRUE(deadline_.ShouldAsk());
}

}  // namespace
}  // namespace kaon::coordinator
