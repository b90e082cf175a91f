#include "tests/simulation/delivered_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::simulation {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kCoordinator = 4;

v1::Ballot BallotOf(uint64_t counter) {
  v1::Ballot ballot;
  ballot.set_counter(counter);
  return ballot;
}

v1::StepPlan PlanOf(uint64_t ballot, uint64_t round, uint64_t position = 8) {
  v1::StepPlan plan;
  plan.set_position(position);
  *plan.mutable_ballot() = BallotOf(ballot);
  plan.set_round(round);
  return plan;
}

v1::ShardToCoordinator StateUnder(uint64_t ballot, uint64_t applied_position = 7) {
  v1::ShardToCoordinator message;
  *message.mutable_promised() = BallotOf(ballot);
  message.mutable_state()->set_applied_position(applied_position);
  return message;
}

v1::ShardToCoordinator PreparedUnder(uint64_t ballot, const v1::StepPlan& plan) {
  v1::ShardToCoordinator message;
  *message.mutable_promised() = BallotOf(ballot);
  message.mutable_prepared()->set_plan(plan.SerializeAsString());
  return message;
}

// Two shards, and a coordinator that uses ballot 3 and then ballot 5.
class DeliveredAnswersTest : public testing::Test {
 protected:
  void ReadBoth(uint64_t ballot) {
    for (int shard : {0, 1}) answers_.OnDelivered(kCoordinator, shard, StateUnder(ballot));
  }
  std::string Planned(const v1::StepPlan& plan) const {
    return answers_.CheckPlan(kCoordinator, plan.ballot(), plan);
  }
  std::string Decided(uint64_t ballot, const v1::StepPlan& plan) const {
    return answers_.CheckDecision(kCoordinator, BallotOf(ballot), plan);
  }

  DeliveredAnswers answers_{2};
};

TEST_F(DeliveredAnswersTest, ARoundTakesAnAnswerOfEveryShardToItsOwnPromise) {
  EXPECT_THAT(Planned(PlanOf(5, 1)), HasSubstr("without what shard 0 answered"));
  ReadBoth(3);
  EXPECT_THAT(Planned(PlanOf(5, 1)), HasSubstr("the newest answer that came is of ballot 3"));
  answers_.OnDelivered(kCoordinator, 0, StateUnder(5));
  EXPECT_THAT(Planned(PlanOf(5, 1)), HasSubstr("without what shard 1 answered"));
  answers_.OnDelivered(kCoordinator + 1, 1, StateUnder(5));
  EXPECT_THAT(Planned(PlanOf(5, 1)), HasSubstr("without what shard 1 answered"));
  answers_.OnDelivered(kCoordinator, 1, StateUnder(5));
  EXPECT_THAT(Planned(PlanOf(5, 1)), IsEmpty());
}

TEST_F(DeliveredAnswersTest, NoRoundIsOpenedWhereAShardIs) {
  answers_.OnDelivered(kCoordinator, 0, StateUnder(5));
  answers_.OnDelivered(kCoordinator, 1, StateUnder(5, 8));
  EXPECT_THAT(Planned(PlanOf(5, 1)), HasSubstr("shard 1 had answered that it is at position 8"));
  EXPECT_THAT(Planned(PlanOf(5, 1, 9)), IsEmpty());
}

TEST_F(DeliveredAnswersTest, ADecisionTakesThePrepareOfThisVeryPlanFromEveryShard) {
  ReadBoth(5);
  const v1::StepPlan plan = PlanOf(5, 2);
  answers_.OnDelivered(kCoordinator, 0, PreparedUnder(5, plan));
  answers_.OnDelivered(kCoordinator, 1, PreparedUnder(5, PlanOf(5, 1)));
  EXPECT_THAT(Decided(5, plan), HasSubstr("which shard 1 has not answered"));
  answers_.OnDelivered(kCoordinator, 1, PreparedUnder(5, plan));
  EXPECT_THAT(Decided(5, plan), IsEmpty());
}

TEST_F(DeliveredAnswersTest, WhatWasAnsweredUnderAnOlderBallotDecidesNothing) {
  const v1::StepPlan plan = PlanOf(3, 1);
  ReadBoth(3);
  for (int shard : {0, 1}) answers_.OnDelivered(kCoordinator, shard, PreparedUnder(3, plan));
  EXPECT_THAT(Decided(3, plan), IsEmpty());
  EXPECT_THAT(Decided(5, plan), HasSubstr("without what shard 0 answered"));
  ReadBoth(5);
  // A late copy.
  answers_.OnDelivered(kCoordinator, 0, PreparedUnder(3, plan));
  EXPECT_THAT(Decided(5, plan), HasSubstr("which shard 0 has not answered"));
}

TEST_F(DeliveredAnswersTest, WhatAllShowAsPreparedOrAppliedWhenTheyAreReadIsDecided) {
  const v1::StepPlan plan = PlanOf(3, 1);
  v1::ShardToCoordinator holding = StateUnder(5);
  holding.mutable_state()->mutable_prepared()->set_plan(plan.SerializeAsString());
  answers_.OnDelivered(kCoordinator, 0, holding);
  v1::ShardToCoordinator applied = StateUnder(5, 8);
  *applied.mutable_state()->mutable_applied_record()->mutable_plan() = plan;
  answers_.OnDelivered(kCoordinator, 1, applied);
  EXPECT_THAT(Decided(5, plan), IsEmpty());
  EXPECT_THAT(Decided(5, PlanOf(3, 2)), HasSubstr("which shard 0 has not answered"));
}

}  // namespace
}  // namespace kaon::simulation
