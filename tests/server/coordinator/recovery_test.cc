#include "server/coordinator/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/ballot.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::StepPlan PlanAt(uint64_t position, uint64_t round = 1) {
  v1::StepPlan plan;
  plan.set_job("tiny");
  plan.set_position(position);
  plan.set_round(round);
  return plan;
}

v1::ShardState StateAt(uint64_t position) {
  v1::ShardState state;
  state.set_applied_position(position);
  if (position == 0) return state;
  *state.mutable_applied_record()->mutable_plan() = PlanAt(position);
  state.mutable_registration()->mutable_definition()->set_name("tiny");
  return state;
}

v1::ShardState Holding(v1::ShardState state, const v1::StepPlan& plan) {
  state.mutable_prepared()->set_plan(plan.SerializeAsString());
  return state;
}

void ExpectLost(const std::vector<v1::ShardState>& states, const std::string& shard) {
  const absl::Status stop = Recover(states).stop;
  EXPECT_EQ(stop.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(stop.message(), HasSubstr(shard));
}

TEST(RecoveryTest, EmptyShardsHaveNothingToDo) {
  const Recovery recovery = Recover({StateAt(0), StateAt(0)});
  EXPECT_TRUE(recovery.stop.ok());
  EXPECT_THAT(recovery.behind, IsEmpty());
  EXPECT_FALSE(recovery.must_decide.has_value());
}

TEST(RecoveryTest, AllPreparedAlikeMustBeDecided) {
  const Recovery recovery =
      Recover({Holding(StateAt(3), PlanAt(4)), Holding(StateAt(3), PlanAt(4))});
  ASSERT_TRUE(recovery.must_decide.has_value());
  EXPECT_TRUE(proto::Alike(*recovery.must_decide, PlanAt(4)));
}

TEST(RecoveryTest, FirstRegistrationPreparedByAllMustBeDecided) {
  EXPECT_TRUE(Recover({Holding(StateAt(0), PlanAt(1)), Holding(StateAt(0), PlanAt(1))})
                  .must_decide.has_value());
}

TEST(RecoveryTest, MissingOrUnlikePreparesLeaveTheStepOpen) {
  EXPECT_FALSE(Recover({Holding(StateAt(3), PlanAt(4)), StateAt(3)}).must_decide.has_value());
  EXPECT_FALSE(Recover({StateAt(3), Holding(StateAt(3), PlanAt(4))}).must_decide.has_value());
  EXPECT_FALSE(Recover({Holding(StateAt(3), PlanAt(4)), Holding(StateAt(3), PlanAt(4, 2))})
                   .must_decide.has_value());
}

TEST(RecoveryTest, ShardsOneBehindWithThePrepareGetTheRecord) {
  const Recovery recovery = Recover({Holding(StateAt(3), PlanAt(4)), StateAt(4)});
  EXPECT_TRUE(recovery.stop.ok()) << recovery.stop;
  EXPECT_EQ(recovery.newest, 1);
  EXPECT_THAT(recovery.behind, ElementsAre(0));
  EXPECT_FALSE(recovery.must_decide.has_value());
}

TEST(RecoveryTest, WhatCannotComeAboutWithoutLossNamesTheShard) {
  ExpectLost({StateAt(3), StateAt(4)}, "shard 0");
  ExpectLost({StateAt(4), Holding(StateAt(3), PlanAt(4, 9))}, "shard 1");
  ExpectLost({StateAt(1), StateAt(0)}, "shard 1");
  ExpectLost({StateAt(9), StateAt(9), StateAt(7)}, "shard 2");
  v1::ShardState other = StateAt(4);
  other.mutable_applied_record()->mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  ExpectLost({StateAt(4), other}, "shard 1");
  v1::ShardState unregistered = StateAt(4);
  unregistered.clear_registration();
  ExpectLost({unregistered}, "shard 0");
}

TEST(RecoveryTest, ShardThatSaysItLostItsStateIsBelieved) {
  v1::ShardState lost;
  lost.set_data_loss("marker without state");
  ExpectLost({StateAt(0), lost}, "shard 1: marker without state");
}

}  // namespace
}  // namespace kaon::coordinator
