#include "server/coordinator/machine/recovery.h"

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

TEST(RecoveryTest, AfterADeletionThereIsNoRegistration) {
  v1::ShardState deleted = StateAt(4);
  deleted.clear_registration();
  deleted.mutable_applied_record()->mutable_plan()->mutable_job_deletion();
  EXPECT_TRUE(Recover({deleted, deleted}).stop.ok());
  v1::StepPlan deletion = PlanAt(4);
  deletion.mutable_job_deletion();
  const Recovery recovery = Recover({Holding(StateAt(3), deletion), deleted});
  EXPECT_TRUE(recovery.stop.ok()) << recovery.stop;
  EXPECT_THAT(recovery.behind, ElementsAre(0));
  ExpectLost({StateAt(3), deleted}, "shard 0");
}

TEST(RecoveryTest, LossOffersARestoreAboveEveryPositionAndVote) {
  v1::StepPlan vote = PlanAt(5);
  vote.set_timeline(3);
  const std::vector<v1::ShardState> states = {StateAt(0), Holding(StateAt(4), vote)};
  const Recovery recovery = Recover(states);
  EXPECT_EQ(recovery.stop.code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(recovery.restore_above.has_value());
  EXPECT_EQ(recovery.restore_above->position, 5u);
  EXPECT_EQ(recovery.restore_above->timeline, 3u);
  EXPECT_FALSE(Recover({states[1], states[1]}).restore_above.has_value());
  // A shard with a damaged directory never votes.
  v1::ShardState damaged;
  damaged.set_data_loss("its journal is damaged");
  EXPECT_FALSE(Recover({damaged, states[1]}).restore_above.has_value());
}

TEST(RecoveryTest, RestoreAfterALossIsDecidedOnceEveryShardHoldsIt) {
  v1::StepPlan plan = PlanAt(6);
  plan.mutable_restore();
  const v1::ShardState empty = Holding(StateAt(0), plan);
  const Recovery recovery = Recover({empty, Holding(StateAt(4), plan)});
  EXPECT_TRUE(recovery.stop.ok()) << recovery.stop;
  ASSERT_TRUE(recovery.must_decide.has_value());
  EXPECT_TRUE(proto::Alike(*recovery.must_decide, plan));
  ExpectLost({empty, StateAt(4)}, "shard 0");
  EXPECT_EQ(Recover({empty, StateAt(4)}).restore_above->position, 6u);
}

TEST(RecoveryTest, ShardThatSaysItLostItsStateIsBelieved) {
  v1::ShardState lost;
  lost.set_data_loss("marker without state");
  ExpectLost({StateAt(0), lost}, "shard 1: marker without state");
}

// Mode interval(K): at `position`, with one snapshot, of position 4.
v1::ShardState Interval(uint64_t position, bool restarted) {
  v1::ShardState state = StateAt(position);
  state.set_durability(v1::DURABILITY_MODE_INTERVAL);
  state.set_interval_steps(4);
  state.set_weights_loaded(true);
  state.set_rollback_needed(restarted);
  state.add_snapshots()->set_position(4);
  return state;
}

v1::StepPlan RollbackAt(uint64_t position, uint64_t round = 1) {
  v1::StepPlan plan = PlanAt(position, round);
  plan.mutable_rollback()->mutable_target()->set_position(4);
  return plan;
}

v1::ShardState RolledBack(uint64_t position, bool restarted) {
  v1::ShardState state = Interval(position, restarted);
  *state.mutable_applied_record()->mutable_plan() = RollbackAt(position);
  return state;
}

TEST(RecoveryTest, AShardThatHasForgottenMakesARollbackNeeded) {
  // Whatever others applied or voted for meanwhile.
  const Recovery recovery =
      Recover({Interval(9, false), Interval(4, true), Holding(Interval(8, false), PlanAt(9))});
  EXPECT_TRUE(recovery.stop.ok()) << recovery.stop;
  EXPECT_THAT(recovery.behind, IsEmpty());
  EXPECT_FALSE(recovery.must_decide.has_value());
  ASSERT_TRUE(recovery.rollback.has_value());
  EXPECT_EQ(recovery.rollback->position(), 10u);
  EXPECT_EQ(recovery.rollback->rollback().target().position(), 4u);
}

TEST(RecoveryTest, ARollbackThatAllHoldMustBeDecidedWhereverTheyStand) {
  const Recovery recovery = Recover(
      {Holding(Interval(9, false), RollbackAt(10)), Holding(Interval(4, true), RollbackAt(10))});
  ASSERT_TRUE(recovery.must_decide.has_value());
  EXPECT_FALSE(recovery.rollback.has_value());
  // Not alike: the next one is above both.
  const Recovery again = Recover(
      {Holding(Interval(9, false), RollbackAt(10)), Holding(Interval(4, true), RollbackAt(10, 2))});
  EXPECT_FALSE(again.must_decide.has_value());
  ASSERT_TRUE(again.rollback.has_value());
  EXPECT_EQ(again.rollback->position(), 11u);
}

TEST(RecoveryTest, WhoHoldsARollbackThatAnotherHasAppliedIsBehind) {
  for (const bool restarted : {true, false}) {
    const Recovery recovery =
        Recover({RolledBack(10, false), Holding(Interval(5, restarted), RollbackAt(10))});
    EXPECT_TRUE(recovery.stop.ok()) << recovery.stop;
    EXPECT_EQ(recovery.newest, 0);
    EXPECT_THAT(recovery.behind, ElementsAre(1));
    EXPECT_FALSE(recovery.rollback.has_value());
  }
  ExpectLost({RolledBack(10, false), Interval(5, true)}, "shard 1");
  ExpectLost({RolledBack(10, false), Holding(Interval(5, true), RollbackAt(10, 2))}, "shard 1");
}

TEST(RecoveryTest, ForgettingAfterARollbackNeedsAnother) {
  const Recovery recovery = Recover({RolledBack(10, false), RolledBack(10, true)});
  ASSERT_TRUE(recovery.rollback.has_value());
  EXPECT_EQ(recovery.rollback->position(), 11u);
}

TEST(RecoveryTest, ForgettingShardsOfAnotherModeStopTheJob) {
  v1::ShardState journal = Interval(9, false);
  journal.set_durability(v1::DURABILITY_MODE_JOURNAL);
  EXPECT_EQ(Recover({journal, Interval(4, true)}).stop.code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kaon::coordinator
