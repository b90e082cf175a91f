#include "server/shard/agreement/shard_machine.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "proto/ballot.h"
#include "tests/server/shard/agreement/machine_fixture.h"

namespace kaon::shard {
namespace {

using ShardMachineTest = MachineFixture;

TEST_F(ShardMachineTest, AnswersAPromiseOnlyWhenItIsDurable) {
  Promise(kHolder, 1);
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].stream, kHolder);
  EXPECT_TRUE(sent[0].message.has_state());
  EXPECT_EQ(sent[0].message.promised().counter(), 1u);
}

TEST_F(ShardMachineTest, AnswersARepeatedPromiseOncePerStreamWhenDurable) {
  Promise(kHolder, 1);
  Promise(kHolder, 1);
  EXPECT_EQ(appends_.size(), 1u);
  MakeDurable();
  EXPECT_EQ(TakeSent().size(), 1u);
  Promise(kHolder, 1);
  EXPECT_TRUE(appends_.empty());
  EXPECT_EQ(TakeSent().size(), 1u);
}

TEST_F(ShardMachineTest, AnswersPreparedOnlyWhenItIsDurable) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_TRUE(sent[0].message.has_prepared());
  EXPECT_TRUE(proto::Alike(PlanOf(sent[0].message.prepared()), TrainPlan(1, 1, 1)));
  EXPECT_EQ(sent[0].message.prepared().gradient_digest(), 77u);
}

TEST_F(ShardMachineTest, APromiseWithdrawsNothing) {
  StartPrepared(TrainPlan(1, 1, 1));
  Promise(kOld, 2);
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_TRUE(sent[0].message.state().has_prepared());
  EXPECT_TRUE(proto::Alike(PlanOf(sent[0].message.state().prepared()), TrainPlan(1, 1, 1)));
}

TEST_F(ShardMachineTest, RestampsAHeldPrepareDurablyWithoutAnotherPush) {
  StartPrepared(TrainPlan(1, 1, 1));
  Promise(kOld, 2);
  MakeDurable();
  TakeSent();
  Plan(kOld, TrainPlan(1, 2, 1));
  EXPECT_EQ(foldings_, 0);
  EXPECT_EQ(restamps_, 1);
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(proto::Alike(PlanOf(sent[0].message.prepared()), TrainPlan(1, 2, 1)));
  EXPECT_EQ(sent[0].message.prepared().gradient_digest(), 77u);
}

TEST_F(ShardMachineTest, RestampsAPlanThatIsStillFolding) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Plan(kHolder, TrainPlan(1, 1, 2));
  EXPECT_EQ(foldings_, 1);
  EXPECT_EQ(restamps_, 1);
  Fold();
  MakeDurable();
  EXPECT_TRUE(proto::Alike(PlanOf(TakeSent().at(0).message.prepared()), TrainPlan(1, 1, 2)));
}

TEST_F(ShardMachineTest, AnswersOnlyTheNewestStampWhenOneOvertakesAnAppend) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  Plan(kHolder, TrainPlan(1, 1, 2));
  MakeDurable();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(proto::Alike(PlanOf(sent[0].message.prepared()), TrainPlan(1, 1, 2)));
}

TEST_F(ShardMachineTest, AChangeOfGroupsIsPreparedAtOnceAndAppliedWhole) {
  Start();
  const v1::StepPlan change = GroupChangePlan(3, 0.5, 1, 1);
  Plan(kHolder, change);
  EXPECT_EQ(foldings_, 0);
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  EXPECT_EQ(TakeSent().at(0).message.prepared().plan(), change.SerializeAsString());
  EXPECT_EQ(machine_.registration()->definition().groups(1).lr(), 0.001);
  Decide(kHolder, 1, Applying(change));
  Apply(3);
  EXPECT_EQ(machine_.state().config_revision(), 3u);
  EXPECT_EQ(machine_.state().applied_position(), 3u);
  EXPECT_EQ(machine_.state().applied_step(), 0u);
  EXPECT_TRUE(machine_.weights_loaded());
  EXPECT_EQ(machine_.registration()->definition().groups(1).lr(), 0.5);
  EXPECT_EQ(machine_.registration()->changed(0).position(), 3u);
  TakeSent();
  // Later entries name the new revision.
  v1::StepPlan step = TrainPlan(1, 1, 1);
  step.set_position(4);
  Plan(kHolder, step);
  EXPECT_EQ(TakeSent().at(0).message.refused().detail(), "config revision 1 planned, applied is 3");
  step.set_config_revision(3);
  Plan(kHolder, step);
  EXPECT_EQ(foldings_, 1);
}

// Rule 2 applies to control changes, too, although they have nothing to fold.
TEST_F(ShardMachineTest, AChangeOfGroupsIsRestamped) {
  Start();
  Plan(kHolder, GroupChangePlan(3, 0.5, 1, 1));
  MakeDurable();
  Promise(kOld, 2);
  MakeDurable();
  EXPECT_TRUE(TakeSent().back().message.state().has_prepared());
  Plan(kOld, GroupChangePlan(3, 0.5, 2, 1));
  MakeDurable();
  EXPECT_EQ(restamps_, 0);
  EXPECT_EQ(TakeSent().at(0).message.prepared().plan(),
            GroupChangePlan(3, 0.5, 2, 1).SerializeAsString());
}

TEST_F(ShardMachineTest, AHigherPlanThatIsNotAlikeWithdrawsThePrepare) {
  StartPrepared(TrainPlan(1, 1, 1));
  v1::StepPlan other = TrainPlan(1, 1, 2);
  other.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  const uint64_t withdrawn = generation_;
  Plan(kHolder, other);
  EXPECT_EQ(foldings_, 1);
  EXPECT_GT(generation_, withdrawn);
  EXPECT_FALSE(machine_.state().has_prepared());
  machine_.OnFolded(withdrawn, v1::Prepared());
  Collect();
  EXPECT_TRUE(appends_.empty());
}

// The journal still reads the gradient that the other plan would overwrite.
TEST_F(ShardMachineTest, LosesAPlanThatWouldWithdrawAPrepareBeforeItIsDurable) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  foldings_ = 0;
  v1::StepPlan other = TrainPlan(1, 1, 2);
  other.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  Plan(kHolder, other);
  EXPECT_EQ(foldings_, 0);
  EXPECT_TRUE(TakeSent().empty());
  MakeDurable();
  EXPECT_TRUE(proto::Alike(PlanOf(TakeSent().at(0).message.prepared()), TrainPlan(1, 1, 1)));
  // The holder resends the plan.
  Plan(kHolder, other);
  EXPECT_EQ(foldings_, 1);
  EXPECT_FALSE(machine_.state().has_prepared());
}

TEST_F(ShardMachineTest, WithdrawsADurablePrepareWhoseRestampIsNotDurableYet) {
  StartPrepared(TrainPlan(1, 1, 1));
  Plan(kHolder, TrainPlan(1, 1, 2));
  v1::StepPlan other = TrainPlan(1, 1, 3);
  other.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  Plan(kHolder, other);
  EXPECT_EQ(foldings_, 1);
  MakeDurable();
  EXPECT_TRUE(TakeSent().empty());
  EXPECT_FALSE(machine_.state().has_prepared());
}

TEST_F(ShardMachineTest, AnswersAnEqualPlanWithItsPrepareAgain) {
  StartPrepared(TrainPlan(1, 1, 1));
  Plan(kHolder, TrainPlan(1, 1, 1));
  EXPECT_TRUE(TakeSent().at(0).message.has_prepared());
  EXPECT_TRUE(appends_.empty());
}

TEST_F(ShardMachineTest, AnswersAnEqualPlanOnTheStreamItCameOn) {
  StartPrepared(TrainPlan(1, 1, 1));
  machine_.OnStreamClosed(kHolder);
  Plan(5, TrainPlan(1, 1, 1));
  EXPECT_EQ(TakeSent().at(0).stream, 5u);
}

TEST_F(ShardMachineTest, TakesADecisionFromAnyCoordinator) {
  StartPrepared(TrainPlan(1, 1, 1));
  Promise(kOld, 2);
  MakeDurable();
  TakeSent();
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  ASSERT_EQ(applies_.size(), 1u);
  // The sender's ballot is below the promised one: it hears nothing but that.
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
  Apply(3);
  EXPECT_EQ(machine_.applied_step(), 1u);
  EXPECT_EQ(TakeSent().at(0).stream, kOld);
}

TEST_F(ShardMachineTest, AppliesADecisionOnceAndAnswersEveryRepetition) {
  StartPrepared(TrainPlan(1, 1, 1));
  const v1::StepRecord record = Applying(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, record);
  Decide(kHolder, 1, record);
  EXPECT_EQ(applies_.size(), 1u);
  EXPECT_TRUE(TakeSent().empty());
  Apply(3);
  EXPECT_EQ(TakeSent().at(0).message.applied().position(), 3u);
  Decide(kHolder, 1, record);
  EXPECT_EQ(applies_.size(), 1u);
  EXPECT_EQ(TakeSent().at(0).message.applied().position(), 3u);
}

TEST_F(ShardMachineTest, AppendsTheRecordBeforeAnythingOfTheNextEntry) {
  StartPrepared(TrainPlan(1, 1, 1));
  records_.clear();
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  Apply(3);
  Plan(kHolder, TrainPlan(2, 1, 1));
  Fold();
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<journal::DecisionRecord>(records_[0]));
  EXPECT_TRUE(std::holds_alternative<journal::PrepareRecord>(records_[1]));
}

TEST_F(ShardMachineTest, OpensNoRoundForADecidedPosition) {
  StartPrepared(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  Plan(kHolder, TrainPlan(1, 1, 2));
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  Apply(3);
  EXPECT_EQ(machine_.applied_position(), 3u);
}

TEST_F(ShardMachineTest, CountsASkippedStep) {
  StartPrepared(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, Skipping(TrainPlan(1, 1, 1)));
  Apply(3);
  EXPECT_EQ(machine_.applied_step(), 1u);
  EXPECT_EQ(machine_.state().applied_record().decision().outcome(), v1::OUTCOME_SKIP);
}

TEST_F(ShardMachineTest, SkippedInitialWeightsAreNotLoaded) {
  Promise(kHolder, 1);
  MakeDurable();
  Plan(kHolder, RegistrationPlan(1, 1));
  machine_.OnReserved(generation_, absl::OkStatus());
  Collect();
  MakeDurable();
  Decide(kHolder, 1, Applying(RegistrationPlan(1, 1)));
  Apply(1);
  Plan(kHolder, LoadPlan(1, 1));
  Fold();
  MakeDurable();
  Decide(kHolder, 1, Skipping(LoadPlan(1, 1)));
  Apply(2);
  EXPECT_EQ(machine_.applied_position(), 2u);
  EXPECT_FALSE(machine_.weights_loaded());
}

TEST_F(ShardMachineTest, TellsANewHolderTheJobAndTheNewestRecord) {
  Start();
  Promise(kOld, 2);
  MakeDurable();
  const v1::ShardState state = TakeSent().at(0).message.state();
  EXPECT_EQ(state.applied_position(), 2u);
  EXPECT_EQ(state.timeline(), 1u);
  EXPECT_EQ(state.config_revision(), 1u);
  EXPECT_TRUE(state.weights_loaded());
  EXPECT_EQ(state.registration().definition().name(), "gpt2");
  EXPECT_EQ(state.applied_record().plan().position(), 2u);
  EXPECT_EQ(state.durability(), v1::DURABILITY_MODE_NONE);
}

TEST_F(ShardMachineTest, ReportsForHowLongTheHolderWasSilent) {
  Probe(kOld);
  EXPECT_EQ(TakeSent().at(0).message.probed().holder_silent_ms(),
            static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  Promise(kHolder, 1);
  MakeDurable();
  TakeSent();
  now_ += absl::Milliseconds(250);
  Probe(kOld);
  v1::ShardToCoordinator reply = TakeSent().at(0).message;
  EXPECT_EQ(reply.probed().holder_silent_ms(), 250u);
  EXPECT_EQ(reply.probed().holder_address(), "coordinator:1");
  EXPECT_EQ(reply.promised().counter(), 1u);
  Heartbeat(kHolder, 1);
  EXPECT_TRUE(TakeSent().at(0).message.has_heartbeat());
  Probe(kOld);
  EXPECT_EQ(TakeSent().at(0).message.probed().holder_silent_ms(), 0u);
}

// P4, rule 2: every vote, even a re-stamped one or one on a change, has the digest of the state
// before.
TEST_F(ShardMachineTest, StampsEveryVoteWithTheStateAfterTheEntryBefore) {
  StartPrepared(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  Apply(3, /*state_digest=*/99);
  EXPECT_EQ(machine_.state_digest(), 99u);
  Plan(kHolder, TrainPlan(2, 1, 1));
  Fold();
  MakeDurable();
  TakeSent();
  Plan(kHolder, TrainPlan(2, 1, 2));
  MakeDurable();
  EXPECT_EQ(TakeSent().at(0).message.prepared().state_digest(), 99u);
  Plan(kHolder, GroupChangePlan(4, 0.5, 1, 3));
  MakeDurable();
  EXPECT_EQ(TakeSent().at(0).message.prepared().state_digest(), 99u);
}

}  // namespace
}  // namespace kaon::shard
