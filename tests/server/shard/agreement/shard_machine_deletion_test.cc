// The deletion of a job in the agreement of one shard (ADR 0048).
#include <gtest/gtest.h>

#include <vector>

#include "tests/server/shard/agreement/machine_fixture.h"

namespace kaon::shard {
namespace {

// Returns the plan that registers a job after the deletion at position 3.
v1::StepPlan NextRegistration(uint64_t timeline) {
  v1::StepPlan plan = RegistrationPlan(1, 1);
  plan.set_position(4);
  plan.set_timeline(timeline);
  plan.set_config_revision(3);
  return plan;
}

class ShardMachineDeletionTest : public MachineFixture {
 protected:
  explicit ShardMachineDeletionTest(uint32_t interval_steps = 0) : MachineFixture(interval_steps) {}

  void Delete() {
    Start();
    Plan(kHolder, DeletionPlan(3, 1, 1));
    MakeDurable();
    Decide(kHolder, 1, Applying(DeletionPlan(3, 1, 1)));
    Apply(3);
    MakeDurable();
    TakeSent();
  }
};

TEST_F(ShardMachineDeletionTest, VotesAtOnceAndWithdrawsTheOpenStep) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Plan(kHolder, DeletionPlan(3, 1, 2));
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(PlanOf(sent[0].message.prepared()).has_job_deletion());
  EXPECT_TRUE(machine_.registration().has_value());
}

TEST_F(ShardMachineDeletionTest, HoldsNoJobOnceItIsAppliedButKeepsWhatFences) {
  Delete();
  EXPECT_FALSE(machine_.registration().has_value());
  EXPECT_FALSE(machine_.weights_loaded());
  EXPECT_EQ(machine_.deleted_job(), "gpt2");
  const v1::ShardState state = machine_.state();
  EXPECT_EQ(state.applied_position(), 3u);
  EXPECT_EQ(state.timeline(), 1u);
  EXPECT_EQ(state.config_revision(), 3u);
  EXPECT_EQ(machine_.promised().counter(), 1u);
  // The shard refuses a step and acknowledges a repeated decision.
  v1::StepPlan step = TrainPlan(2, 1, 1);
  step.set_config_revision(3);
  Plan(kHolder, step);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  Decide(kHolder, 1, Applying(DeletionPlan(3, 1, 1)));
  EXPECT_EQ(TakeSent().at(0).message.applied().position(), 3u);
}

TEST_F(ShardMachineDeletionTest, TheNextJobBeginsTheNextTimeline) {
  Delete();
  Plan(kHolder, NextRegistration(1));
  EXPECT_EQ(TakeSent().at(0).message.refused().detail(), "timeline 1 planned, expecting 2");
  Plan(kHolder, NextRegistration(2));
  machine_.OnReserved(generation_, absl::OkStatus());
  Collect();
  MakeDurable();
  ASSERT_TRUE(TakeSent().at(0).message.has_prepared());
  Decide(kHolder, 1, Applying(NextRegistration(2)));
  Apply(4);
  EXPECT_TRUE(machine_.registration().has_value());
  EXPECT_EQ(machine_.timeline(), 2u);
  EXPECT_EQ(machine_.deleted_job(), "");
}

TEST_F(ShardMachineDeletionTest, RefusesTheDeletionOfAnotherJobAndASkippedOne) {
  Start();
  v1::StepPlan other = DeletionPlan(3, 1, 1);
  other.set_job("bert");
  Plan(kHolder, other);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_INVALID);
  Plan(kHolder, DeletionPlan(3, 1, 1));
  MakeDurable();
  TakeSent();
  v1::StepRecord skipped = Applying(DeletionPlan(3, 1, 1));
  skipped.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  Decide(kHolder, 1, skipped);
  EXPECT_EQ(TakeSent().at(0).message.refused().detail(), "outcome of a deletion is 2, expecting 1");
}

class IntervalDeletionTest : public ShardMachineDeletionTest {
 protected:
  IntervalDeletionTest() : ShardMachineDeletionTest(4) {}

  static AgreementSnapshot FactsAt(const v1::StepPlan& plan) {
    AgreementSnapshot facts;
    facts.state.set_applied_position(plan.position());
    facts.state.set_timeline(1);
    facts.state.set_config_revision(1);
    *facts.state.mutable_applied_record() = Applying(plan);
    facts.promised = MakeBallot(1);
    facts.num_shards = 1;
    facts.newest_generation = 9;
    return facts;
  }
};

// The vote for a deletion is on disk, although those of the steps before it are not.
TEST_F(IntervalDeletionTest, IsReplayedBehindForgottenSteps) {
  AgreementSnapshot facts = FactsAt(TrainPlan(2, 1, 1));
  facts.state.set_applied_step(2);
  facts.state.set_weights_loaded(true);
  *facts.state.mutable_registration() = MakeRegistration();
  machine_.RestoreFacts(facts, 5);
  ASSERT_TRUE(machine_.state().rollback_needed());
  journal::PrepareRecord prepare;
  prepare.prepared.set_plan(DeletionPlan(8, 1, 1).SerializeAsString());
  prepare.generation = 12;
  ASSERT_TRUE(machine_.RestorePrepared(DeletionPlan(8, 1, 1), prepare).ok());
  // Another shard may have applied the deletion.
  EXPECT_TRUE(machine_.state().has_prepared());
  ASSERT_TRUE(machine_.RestoreDecision(Applying(DeletionPlan(8, 1, 1))).ok());
  Apply(8);
  EXPECT_EQ(machine_.deleted_job(), "gpt2");
  EXPECT_FALSE(machine_.state().rollback_needed());
}

TEST_F(IntervalDeletionTest, IsRefusedWhileARollbackIsNeeded) {
  AgreementSnapshot facts = FactsAt(TrainPlan(2, 1, 1));
  facts.state.set_applied_step(2);
  facts.state.set_weights_loaded(true);
  *facts.state.mutable_registration() = MakeRegistration();
  machine_.RestoreFacts(facts, 5);
  Promise(kHolder, 2);
  MakeDurable();
  TakeSent();
  Plan(kHolder, DeletionPlan(5, 2, 1));
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
}

TEST_F(IntervalDeletionTest, ARestartWithoutAJobNeedsNoRollback) {
  machine_.RestoreFacts(FactsAt(DeletionPlan(3, 1, 1)), 0);
  EXPECT_FALSE(machine_.registration().has_value());
  EXPECT_FALSE(machine_.state().rollback_needed());
  v1::SnapshotPoint of_nothing;
  of_nothing.set_position(3);
  machine_.OnSnapshot(of_nothing, 1);
  EXPECT_EQ(machine_.state().snapshots_size(), 0);
}

}  // namespace
}  // namespace kaon::shard
