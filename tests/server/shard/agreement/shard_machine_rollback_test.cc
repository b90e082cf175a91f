// Mode interval(K): the state and votes of a shard that restarted, and of one that rolls back with
// it (protocol.md 2.2 and 3).
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "proto/decide_version.h"
#include "tests/server/shard/agreement/machine_fixture.h"

namespace kaon::shard {
namespace {

class ShardMachineRollbackTest : public MachineFixture {
 protected:
  ShardMachineRollbackTest() : MachineFixture(4u) {}

  static v1::SnapshotPoint PointAt(uint64_t position, uint64_t step) {
    v1::SnapshotPoint point;
    point.set_position(position);
    point.set_step(step);
    *point.mutable_registration() = MakeRegistration();
    *point.mutable_last_decision() = Applying(TrainPlan(1, 1, 1)).decision();
    return point;
  }
  // Back to step 2, after position 4.
  static v1::StepPlan RollbackPlan(uint64_t position, uint64_t counter) {
    v1::StepPlan plan;
    plan.set_job("gpt2");
    plan.set_timeline(2);
    plan.set_position(position);
    *plan.mutable_ballot() = MakeBallot(counter);
    plan.set_round(1);
    plan.set_decide_version(proto::kDecideVersion);
    *plan.mutable_rollback()->mutable_target() = PointAt(4, 2);
    return plan;
  }
  // Restarts from the snapshots of steps 0 and 2, which the shard read.
  void Restart() {
    AgreementSnapshot facts;
    facts.state.set_applied_position(4);
    facts.state.set_applied_step(2);
    facts.state.set_timeline(1);
    facts.state.set_config_revision(1);
    facts.state.set_weights_loaded(true);
    *facts.state.mutable_applied_record() = Applying(TrainPlan(2, 1, 1));
    *facts.state.mutable_registration() = MakeRegistration();
    facts.promised = MakeBallot(1);
    facts.num_shards = 1;
    facts.newest_generation = 9;
    machine_.RestoreFacts(facts, 5);
    machine_.RestoreSnapshots({PointAt(2, 0), PointAt(4, 2)});
  }
  // Steps 1 .. `step`, with the snapshots of steps 0 and 2.
  void TrainTo(uint64_t step) {
    Start();
    machine_.OnSnapshot(PointAt(2, 0), 1);
    for (uint64_t next = 1; next <= step; ++next) {
      Plan(kHolder, TrainPlan(next, 1, 1));
      Fold();
      MakeDurable();
      Decide(kHolder, 1, Applying(TrainPlan(next, 1, 1)));
      Apply(next + 2);
      if (next == 2) machine_.OnSnapshot(PointAt(4, 2), 1);
    }
    MakeDurable();
    TakeSent();
  }
  void BecomeHolder(uint64_t counter) {
    Promise(kHolder, counter);
    MakeDurable();
    TakeSent();
  }
  // The snapshot that the newest plan names was read whole.
  void Check(const absl::Status& status = absl::OkStatus()) {
    machine_.OnReserved(generation_, status);
    Collect();
  }
  v1::Refused Refused() {
    const std::vector<SendToCoordinator> sent = TakeSent();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? v1::Refused() : sent[0].message.refused();
  }
  std::string RefusedAs(v1::RefusalReason reason) {
    const v1::Refused refused = Refused();
    EXPECT_EQ(refused.reason(), reason) << refused.detail();
    return refused.detail();
  }
  bool Voted() {
    const std::vector<SendToCoordinator> sent = TakeSent();
    return sent.size() == 1 && sent[0].message.has_prepared();
  }
};

TEST_F(ShardMachineRollbackTest, ARestartedShardSaysSoAndTakesNothingElse) {
  Restart();
  v1::ShardState state = machine_.state();
  EXPECT_TRUE(state.rollback_needed());
  EXPECT_EQ(state.interval_steps(), 4u);
  EXPECT_EQ(state.durability(), v1::DURABILITY_MODE_INTERVAL);
  ASSERT_EQ(state.snapshots_size(), 2);
  EXPECT_EQ(state.snapshots(1).step(), 2u);
  BecomeHolder(2);
  Plan(kHolder, TrainPlan(3, 2, 1));
  EXPECT_TRUE(absl::StrContains(RefusedAs(v1::REFUSAL_REASON_STALE_PLAN), "a rollback is needed"));
  Plan(kHolder, GroupChangePlan(5, 0.5, 2, 1));
  EXPECT_TRUE(absl::StrContains(RefusedAs(v1::REFUSAL_REASON_STALE_PLAN), "a rollback is needed"));
  // The position may be any later one, because other shards continued.
  Plan(kHolder, RollbackPlan(9, 2));
  Check();
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  EXPECT_TRUE(Voted());
  Decide(kHolder, 2, Applying(RollbackPlan(9, 2)));
  ASSERT_EQ(applies_.size(), 1u);
  Apply(9, 6);
  state = machine_.state();
  EXPECT_FALSE(state.rollback_needed());
  EXPECT_EQ(state.applied_position(), 9u);
  EXPECT_EQ(state.applied_step(), 2u);
  EXPECT_EQ(state.timeline(), 2u);
  EXPECT_EQ(state.config_revision(), 9u);
  EXPECT_EQ(state.snapshots_size(), 2);
}

TEST_F(ShardMachineRollbackTest, AShardThatWentOnGoesBackAndForgetsItsVote) {
  TrainTo(5);
  EXPECT_FALSE(machine_.state().rollback_needed());
  machine_.OnSnapshot(PointAt(6, 4), 1);
  EXPECT_EQ(machine_.state().snapshots(0).step(), 2u);
  Plan(kHolder, TrainPlan(6, 1, 1));
  Fold();
  MakeDurable();
  ASSERT_TRUE(Voted());
  BecomeHolder(2);
  // A rollback is refused at a position that the shard voted for, and into its present timeline.
  Plan(kHolder, RollbackPlan(8, 2));
  EXPECT_EQ(RefusedAs(v1::REFUSAL_REASON_STALE_PLAN),
            "rollback at position 8 planned, expecting above 8");
  v1::StepPlan plan = RollbackPlan(9, 2);
  plan.set_timeline(1);
  Plan(kHolder, plan);
  EXPECT_EQ(RefusedAs(v1::REFUSAL_REASON_STALE_PLAN),
            "timeline 1 planned by a rollback, expecting above 1");
  EXPECT_NE(machine_.held(), nullptr);
  Plan(kHolder, RollbackPlan(9, 2));
  Check();
  MakeDurable();
  EXPECT_TRUE(Voted());
  // A decision that was on its way: its step is among those that are lost.
  Decide(kOld, 1, Applying(TrainPlan(6, 1, 1)));
  EXPECT_EQ(machine_.applied_step(), 5u);
  // The holder died, the next one is on its own again; later ones win.
  BecomeHolder(3);
  Plan(kHolder, RollbackPlan(10, 3));
  Check();
  MakeDurable();
  EXPECT_TRUE(Voted());
  applies_.clear();
  Decide(kHolder, 3, Applying(RollbackPlan(10, 3)));
  ASSERT_EQ(applies_.size(), 1u);
  Apply(10);
  EXPECT_EQ(machine_.applied_step(), 2u);
  // The state of step 4 no longer belongs to the job's history, and neither does the snapshot that
  // was being written.
  machine_.OnSnapshot(PointAt(7, 5), 1);
  ASSERT_EQ(machine_.state().snapshots_size(), 1);
  EXPECT_EQ(machine_.state().snapshots(0).step(), 2u);
  machine_.OnSnapshot(PointAt(10, 2), 2);
  EXPECT_EQ(machine_.state().snapshots_size(), 2);
}

// A holder plans above the positions that it has read. A step that was only accepted then, or whose
// vote was not durable, must not block the holder forever.
TEST_F(ShardMachineRollbackTest, AVoteThatNobodyWasToldOfIsInNobodysWay) {
  TrainTo(5);
  Plan(kHolder, TrainPlan(6, 1, 1));
  BecomeHolder(2);
  EXPECT_FALSE(machine_.state().has_prepared());
  Plan(kHolder, RollbackPlan(8, 2));
  Check();
  MakeDurable();
  EXPECT_TRUE(Voted());
}

TEST_F(ShardMachineRollbackTest, AVoteThatIsDurableOnlyAfterThePromiseIsInNobodysWay) {
  TrainTo(5);
  Plan(kHolder, TrainPlan(6, 1, 1));
  Fold();
  const std::vector<uint64_t> vote = std::exchange(appends_, {});
  BecomeHolder(2);
  EXPECT_FALSE(machine_.state().has_prepared());
  // While the journal reads the step's gradient, the plan is lost; the holder resends it.
  Plan(kHolder, RollbackPlan(8, 2));
  EXPECT_TRUE(TakeSent().empty());
  for (const uint64_t token : vote) machine_.OnDurable(token);
  Collect();
  EXPECT_TRUE(TakeSent().empty());
  EXPECT_NE(machine_.held(), nullptr);
  // A repeated promise reports more than the holder planned by.
  Promise(kHolder, 2);
  ASSERT_EQ(TakeSent().size(), 1u);
  Plan(kHolder, RollbackPlan(8, 2));
  Check();
  MakeDurable();
  EXPECT_TRUE(Voted());
}

TEST_F(ShardMachineRollbackTest, ASnapshotThatIsNotThereIsNoTarget) {
  TrainTo(3);
  BecomeHolder(2);
  v1::StepPlan plan = RollbackPlan(9, 2);
  plan.mutable_rollback()->mutable_target()->set_position(3);
  Plan(kHolder, plan);
  EXPECT_EQ(RefusedAs(v1::REFUSAL_REASON_INVALID),
            "rollback to position 3, step 2: this shard has whole snapshots of position 2, 4");
  plan = RollbackPlan(9, 2);
  plan.mutable_rollback()->mutable_target()->mutable_last_decision()->set_next_loss_scale(3);
  Plan(kHolder, plan);
  RefusedAs(v1::REFUSAL_REASON_INVALID);
  // A snapshot that cannot be read now may be whole, so the holder resends the plan.
  Plan(kHolder, RollbackPlan(9, 2));
  Check(absl::FailedPreconditionError("too many open files"));
  EXPECT_EQ(RefusedAs(v1::REFUSAL_REASON_STALE_PLAN), "too many open files");
  EXPECT_EQ(machine_.state().snapshots_size(), 2);
  // A snapshot that turns out to be damaged is no longer listed.
  Plan(kHolder, RollbackPlan(9, 2));
  Check(absl::DataLossError("file f is torn"));
  EXPECT_EQ(RefusedAs(v1::REFUSAL_REASON_INVALID), "file f is torn");
  ASSERT_EQ(machine_.state().snapshots_size(), 1);
  EXPECT_EQ(machine_.state().snapshots(0).position(), 2u);
}

// The journal on disk has gaps after the snapshot.
TEST_F(ShardMachineRollbackTest, ReplayTakesARollbackBeyondWhatWasForgotten) {
  Restart();
  const v1::StepPlan plan = RollbackPlan(9, 2);
  ASSERT_TRUE(machine_.RestorePromise({MakeBallot(2), 0, 1}).ok());
  journal::PrepareRecord prepare;
  prepare.prepared.set_plan(plan.SerializeAsString());
  // Digest of the state that was forgotten.
  prepare.prepared.set_state_digest(77);
  prepare.generation = 12;
  ASSERT_EQ(machine_.RestorePrepared(plan, prepare), absl::OkStatus());
  EXPECT_TRUE(machine_.state().rollback_needed());
  EXPECT_EQ(machine_.state().prepared().plan(), plan.SerializeAsString());
  ASSERT_EQ(machine_.RestoreDecision(Applying(plan)), absl::OkStatus());
  machine_.OnApplied(9, 5);
  EXPECT_FALSE(machine_.state().rollback_needed());
  EXPECT_EQ(machine_.applied_position(), 9u);
}

TEST_F(ShardMachineRollbackTest, TrainStepsAndChangesAreForgottenOnceThereAreWeights) {
  EXPECT_FALSE(machine_.IsVolatile(GroupChangePlan(2, 0.5, 1, 1)));
  Start();
  EXPECT_TRUE(machine_.IsVolatile(GroupChangePlan(3, 0.5, 1, 1)));
  EXPECT_TRUE(machine_.IsVolatile(TrainPlan(1, 1, 1)));
  EXPECT_FALSE(machine_.IsVolatile(RollbackPlan(9, 2)));
  EXPECT_FALSE(machine_.IsVolatile(LoadPlan(1, 1)));
}

class JournalMachineTest : public MachineFixture {};

TEST_F(JournalMachineTest, AnotherModeTakesNoRollback) {
  Start();
  v1::StepPlan plan = TrainPlan(7, 1, 1);
  plan.set_timeline(2);
  plan.mutable_rollback()->mutable_target()->set_position(2);
  Plan(kHolder, plan);
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_FALSE(machine_.IsVolatile(TrainPlan(1, 1, 1)));
}

// In mode journal: shards of a job that lost the state of one of them.
class ShardMachineLossTest : public MachineFixture {
 protected:
  // Restores step 7 as timeline 3.
  static v1::StepPlan RestorePlan(uint64_t position) {
    v1::StepPlan plan;
    plan.set_job("gpt2");
    plan.set_timeline(3);
    plan.set_position(position);
    *plan.mutable_ballot() = MakeBallot(2);
    plan.set_round(1);
    plan.set_decide_version(proto::kDecideVersion);
    v1::RestoreBody& restore = *plan.mutable_restore();
    *restore.mutable_registration() = MakeRegistration();
    restore.set_checkpoint("seven");
    restore.set_step(7);
    *restore.mutable_last_decision() = Applying(TrainPlan(1, 1, 1)).decision();
    return plan;
  }
  // Returns the first answer to the plan.
  v1::ShardToCoordinator Ask(const v1::StepPlan& plan) {
    TakeSent();
    Plan(kHolder, plan);
    machine_.OnReserved(generation_, absl::OkStatus());
    Collect();
    MakeDurable();
    const std::vector<SendToCoordinator> sent = TakeSent();
    return sent.empty() ? v1::ShardToCoordinator() : sent[0].message;
  }
  void TakeHolder() {
    Promise(kHolder, 2);
    MakeDurable();
  }
};

TEST_F(ShardMachineLossTest, AnEmptyShardTakesTheRestoreOfTheOthersPosition) {
  TakeHolder();
  const v1::StepPlan plan = RestorePlan(9);
  EXPECT_TRUE(Ask(plan).has_prepared());
  Decide(kHolder, 2, Applying(plan));
  Apply(9);
  EXPECT_EQ(machine_.state().applied_position(), 9u);
  EXPECT_EQ(machine_.state().applied_step(), 7u);
  EXPECT_EQ(machine_.state().timeline(), 3u);
}

TEST_F(ShardMachineLossTest, TheOtherShardsTakeItAboveTheirVotes) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  MakeDurable();
  TakeHolder();
  // The vote for position 3 may have been decided, and applied by the lost shard alone.
  EXPECT_TRUE(Ask(RestorePlan(4)).has_prepared());
  Decide(kOld, 1, Applying(TrainPlan(1, 1, 1)));
  EXPECT_EQ(machine_.state().applied_position(), 2u);
  Decide(kHolder, 2, Applying(RestorePlan(4)));
  Apply(4);
  EXPECT_EQ(machine_.state().applied_step(), 7u);
}

// One shard refused the first plan, as it could not read the checkpoint.
TEST_F(ShardMachineLossTest, TheSameHolderPlansItAnew) {
  TakeHolder();
  EXPECT_TRUE(Ask(RestorePlan(9)).has_prepared());
  v1::StepPlan again = RestorePlan(9);
  EXPECT_FALSE(Ask(again).has_refused()) << "the plan may be repeated";
  again.set_round(2);
  again.mutable_restore()->set_checkpoint("eight");
  EXPECT_TRUE(Ask(again).has_prepared());
  Decide(kHolder, 2, Applying(again));
  Apply(9);
  EXPECT_EQ(machine_.state().applied_position(), 9u);
}

TEST_F(ShardMachineLossTest, AJournalWithThePositionsLeftOutIsReplayed) {
  const v1::StepPlan plan = RestorePlan(9);
  ASSERT_TRUE(machine_.RestorePromise({MakeBallot(2), 0, 1}).ok());
  journal::PrepareRecord vote;
  vote.prepared.set_plan(plan.SerializeAsString());
  vote.generation = 1;
  EXPECT_TRUE(machine_.RestorePrepared(plan, vote).ok());
  EXPECT_TRUE(machine_.RestoreDecision(Applying(plan)).ok());
  Apply(9);
  EXPECT_EQ(machine_.state().applied_step(), 7u);
}

}  // namespace
}  // namespace kaon::shard
