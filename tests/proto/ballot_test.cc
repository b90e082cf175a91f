#include "proto/ballot.h"

#include <gtest/gtest.h>

namespace kaon::proto {
namespace {

v1::Ballot MakeBallot(uint64_t counter, uint64_t high, uint64_t low) {
  v1::Ballot ballot;
  ballot.set_counter(counter);
  ballot.set_incarnation_high(high);
  ballot.set_incarnation_low(low);
  return ballot;
}

TEST(BallotTest, OrdersByCounterThenIncarnation) {
  EXPECT_LT(Compare(MakeBallot(1, 9, 9), MakeBallot(2, 0, 0)), 0);
  EXPECT_LT(Compare(MakeBallot(2, 1, 9), MakeBallot(2, 2, 0)), 0);
  EXPECT_GT(Compare(MakeBallot(2, 2, 1), MakeBallot(2, 2, 0)), 0);
  EXPECT_EQ(Compare(MakeBallot(2, 2, 1), MakeBallot(2, 2, 1)), 0);
}

TEST(BallotTest, OrdersAttemptsByBallotThenNumber) {
  v1::Attempt a;
  *a.mutable_ballot() = MakeBallot(1, 0, 0);
  a.set_number(9);
  v1::Attempt b;
  *b.mutable_ballot() = MakeBallot(2, 0, 0);
  b.set_number(1);
  EXPECT_LT(Compare(a, b), 0);
  *b.mutable_ballot() = a.ballot();
  EXPECT_GT(Compare(a, b), 0);
  EXPECT_EQ(Compare(a, a), 0);
}

TEST(BallotTest, OrdersPlansByBallotThenRound) {
  v1::StepPlan a;
  *a.mutable_ballot() = MakeBallot(1, 0, 0);
  a.set_round(5);
  v1::StepPlan b = a;
  b.set_round(6);
  EXPECT_LT(CompareRound(a, b), 0);
  *a.mutable_ballot() = MakeBallot(2, 0, 0);
  EXPECT_GT(CompareRound(a, b), 0);
}

TEST(BallotTest, AlikeIsByteEquality) {
  v1::StepPlan a;
  a.set_job("gpt2");
  a.set_round(1);
  v1::StepPlan b = a;
  EXPECT_TRUE(Alike(a, b));
  b.set_position(2);
  EXPECT_FALSE(Alike(a, b));
  EXPECT_FALSE(AlikeButForRound(a, b));
}

TEST(BallotTest, AlikeButForRoundLooksPastBallotAndRoundOnly) {
  v1::StepPlan a;
  a.set_job("gpt2");
  a.set_round(1);
  *a.mutable_ballot() = MakeBallot(1, 2, 3);
  v1::StepPlan b = a;
  b.set_round(7);
  *b.mutable_ballot() = MakeBallot(4, 5, 6);
  EXPECT_FALSE(Alike(a, b));
  EXPECT_TRUE(AlikeButForRound(a, b));
  b.mutable_step()->add_members()->set_rank(1);
  EXPECT_FALSE(AlikeButForRound(a, b));
}

TEST(BallotTest, PrintsCounterAndStartOfIncarnation) {
  v1::Attempt attempt;
  *attempt.mutable_ballot() = MakeBallot(7, 0x3fa9000000000001u, 0);
  attempt.set_number(4);
  EXPECT_EQ(ToString(attempt.ballot()), "7.3fa9");
  EXPECT_EQ(ToString(attempt), "7.3fa9/4");
}

}  // namespace
}  // namespace kaon::proto
