// The machine read back from its journal. journal_replay_test covers a whole shard that replays
// its records.
#include <gtest/gtest.h>

#include "proto/ballot.h"
#include "tests/server/shard/agreement/machine_fixture.h"

namespace kaon::shard {
namespace {

class ShardMachineReplayTest : public MachineFixture {
 protected:
  journal::PromiseRecord PromiseOf(uint64_t counter) { return {MakeBallot(counter), 0, 1}; }
  journal::PrepareRecord PrepareOf(const v1::StepPlan& plan, uint64_t generation) {
    journal::PrepareRecord prepare;
    prepare.prepared.set_plan(plan.SerializeAsString());
    prepare.generation = generation;
    return prepare;
  }
  absl::Status Prepare(const v1::StepPlan& plan, uint64_t generation) {
    return machine_.RestorePrepared(plan, PrepareOf(plan, generation));
  }
  void RestoreLoaded() {
    ASSERT_TRUE(machine_.RestorePromise(PromiseOf(1)).ok());
    for (const v1::StepPlan& plan : {RegistrationPlan(1, 1), LoadPlan(1, 1)}) {
      v1::StepPlan loadable = plan;
      if (loadable.has_step()) loadable.mutable_step()->clear_rates();
      ASSERT_TRUE(Prepare(loadable, loadable.position()).ok());
      ASSERT_TRUE(machine_.RestoreDecision(Applying(loadable)).ok());
      machine_.OnApplied(loadable.position(), 0);
    }
    Collect();
  }
};

TEST_F(ShardMachineReplayTest, SaysAndAsksNothing) {
  RestoreLoaded();
  ASSERT_TRUE(Prepare(TrainPlan(1, 1, 1), 3).ok());
  Collect();
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(records_.empty());
  EXPECT_EQ(foldings_, 0);
}

TEST_F(ShardMachineReplayTest, AnswersARepeatedPromiseAtOnceForItIsDurable) {
  ASSERT_TRUE(machine_.RestorePromise(PromiseOf(4)).ok());
  Promise(kHolder, 4);
  EXPECT_TRUE(appends_.empty());
  EXPECT_TRUE(TakeSent().at(0).message.has_state());
}

TEST_F(ShardMachineReplayTest, StandsAtTheNewestDecision) {
  RestoreLoaded();
  EXPECT_EQ(machine_.applied_position(), 2u);
  EXPECT_TRUE(machine_.weights_loaded());
  EXPECT_EQ(machine_.timeline(), 1u);
  EXPECT_EQ(machine_.state().config_revision(), 1u);
  EXPECT_EQ(machine_.state().applied_record().plan().position(), 2u);
}

// Rule 4: "A promise withdraws nothing." A restart withdraws nothing, either.
TEST_F(ShardMachineReplayTest, HoldsItsPrepareAndRefusesPlansBelowIt) {
  RestoreLoaded();
  ASSERT_TRUE(Prepare(TrainPlan(1, 1, 2), 3).ok());
  EXPECT_TRUE(machine_.state().has_prepared());
  Plan(kHolder, TrainPlan(1, 1, 1));
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  Plan(kHolder, TrainPlan(1, 1, 2));
  EXPECT_TRUE(TakeSent().at(0).message.has_prepared());
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 2)));
  EXPECT_EQ(applies_.size(), 1u);
}

TEST_F(ShardMachineReplayTest, StartsNewGenerationsAboveEverySeenOne) {
  RestoreLoaded();
  machine_.RestoreGeneration(17);
  Plan(kHolder, TrainPlan(1, 1, 1));
  EXPECT_EQ(generation_, 18u);
}

// P7, P11: recorded and replayed state are compared at every vote, a re-stamped one included.
TEST_F(ShardMachineReplayTest, RefusesAVoteThatWasMadeOnAnotherState) {
  RestoreLoaded();
  journal::PrepareRecord prepare = PrepareOf(TrainPlan(1, 1, 1), 3);
  prepare.prepared.set_state_digest(0xabc);
  const absl::Status status = machine_.RestorePrepared(TrainPlan(1, 1, 1), prepare);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("was made with state digest 0000000000000abc, replay gives "
                                  "0000000000000000"),
            absl::string_view::npos)
      << status;
  EXPECT_FALSE(machine_.state().has_prepared());
}

// A journal outlives the version of decide() that its entries were decided by; a vote under it is
// another matter.
TEST_F(ShardMachineReplayTest, ReadsEntriesThatAnotherDecideDecided) {
  ASSERT_TRUE(machine_.RestorePromise(PromiseOf(1)).ok());
  v1::StepPlan plan = RegistrationPlan(1, 1);
  plan.set_decide_version(plan.decide_version() + 1);
  EXPECT_TRUE(Prepare(plan, 1).ok());
  EXPECT_TRUE(machine_.RestoreDecision(Applying(plan)).ok());
}

}  // namespace
}  // namespace kaon::shard
