#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/shard/agreement/machine_fixture.h"

namespace kaon::shard {
namespace {

using ShardMachineRefusalsTest = MachineFixture;

class LostShardMachineTest : public MachineFixture {
 protected:
  LostShardMachineTest() : MachineFixture("shard state was in memory only") {}
};

TEST_F(ShardMachineRefusalsTest, RefusesAWaitingPromiseThatAHigherOneOvertook) {
  Promise(kOld, 1);
  Promise(kHolder, 2);
  std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].stream, kOld);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
  MakeDurable();
  sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].stream, kHolder);
  EXPECT_TRUE(sent[0].message.has_state());
}

TEST_F(ShardMachineRefusalsTest, RefusesEveryKindOfMessageOfALowerBallotNamingTheHolder) {
  Promise(kHolder, 3);
  MakeDurable();
  TakeSent();
  Promise(kOld, 2);
  Heartbeat(kOld, 2);
  Plan(kOld, RegistrationPlan(2, 1));
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 3u);
  for (const SendToCoordinator& send : sent) {
    EXPECT_EQ(send.message.refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
    EXPECT_EQ(send.message.refused().holder_address(), "coordinator:3");
    EXPECT_EQ(send.message.promised().counter(), 3u);
  }
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
}

TEST_F(ShardMachineRefusalsTest, DropsAPlanThatOvertakesItsPromisesDurability) {
  Promise(kHolder, 1);
  Plan(kHolder, RegistrationPlan(1, 1));
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
  EXPECT_TRUE(TakeSent().empty());
}

TEST_F(ShardMachineRefusalsTest, RefusesAPlanOfABallotThatIsNotPromised) {
  Start();
  Plan(kHolder, TrainPlan(1, 2, 1));
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
}

TEST_F(ShardMachineRefusalsTest, SendsNoPreparedToABallotBelowThePromisedOne) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  Promise(kOld, 2);
  MakeDurable();
  for (const SendToCoordinator& send : TakeSent()) {
    EXPECT_FALSE(send.message.has_prepared());
    EXPECT_EQ(send.stream, kOld);
  }
}

TEST_F(ShardMachineRefusalsTest, RefusesAPlanBelowItsPreparesBallotAndRound) {
  StartPrepared(TrainPlan(1, 1, 3));
  Plan(kHolder, TrainPlan(1, 1, 2));
  std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  v1::StepPlan other = TrainPlan(1, 1, 3);
  other.mutable_step()->mutable_members(0)->set_token_weight(2);
  Plan(kHolder, other);
  sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  EXPECT_TRUE(machine_.state().has_prepared());
}

TEST_F(ShardMachineRefusalsTest, RefusesPlansOfOtherPositionsTimelinesAndRevisions) {
  Start();
  v1::StepPlan position = TrainPlan(1, 1, 1);
  position.set_position(4);
  v1::StepPlan timeline = TrainPlan(1, 1, 1);
  timeline.set_timeline(2);
  v1::StepPlan revision = TrainPlan(1, 1, 1);
  revision.set_config_revision(0);
  for (const v1::StepPlan& plan : {position, timeline, revision}) {
    Plan(kHolder, plan);
    EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
    EXPECT_EQ(machine_.accepted_plan(), nullptr);
  }
}

TEST_F(ShardMachineRefusalsTest, RefusesMalformedPlansForGood) {
  Start();
  v1::StepPlan version = TrainPlan(1, 1, 1);
  version.set_decide_version(version.decide_version() + 1);
  v1::StepPlan weight = TrainPlan(1, 1, 1);
  weight.mutable_step()->mutable_members(0)->set_token_weight(-1);
  v1::StepPlan round = TrainPlan(1, 1, 0);
  for (const v1::StepPlan& plan : {version, weight, round}) {
    Plan(kHolder, plan);
    EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_INVALID);
    EXPECT_EQ(machine_.accepted_plan(), nullptr);
  }
}

TEST_F(ShardMachineRefusalsTest, NamesThePlanItRefuses) {
  Start();
  v1::StepPlan bad = TrainPlan(1, 1, 7);
  bad.mutable_step()->mutable_members(0)->set_token_weight(-1);
  Plan(kHolder, bad);
  const v1::Refused refused = TakeSent().at(0).message.refused();
  EXPECT_EQ(refused.position(), 3u);
  EXPECT_EQ(refused.ballot().counter(), 1u);
  EXPECT_EQ(refused.round(), 7u);
  EXPECT_FALSE(refused.decision());
}

TEST_F(ShardMachineRefusalsTest, NamesTheDecisionItRefuses) {
  StartPrepared(TrainPlan(1, 1, 4));
  v1::StepRecord record = Applying(TrainPlan(1, 1, 4));
  record.mutable_decision()->mutable_norms(0)->set_clip_factor(0);
  Decide(kHolder, 1, record);
  EXPECT_TRUE(applies_.empty());
  const v1::Refused refused = TakeSent().at(0).message.refused();
  EXPECT_EQ(refused.reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(refused.position(), 3u);
  EXPECT_EQ(refused.ballot().counter(), 1u);
  EXPECT_EQ(refused.round(), 4u);
  EXPECT_TRUE(refused.decision());
}

TEST_F(ShardMachineRefusalsTest, RefusesAPlanWhoseBallotIsNotTheSenders) {
  Start();
  v1::CoordinatorToShard message = Envelope(1);
  *message.mutable_plan() = TrainPlan(1, 2, 1);
  Deliver(kHolder, message);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_INVALID);
}

TEST_F(ShardMachineRefusalsTest, RefusesADecisionThatIsNotAlikeToItsPrepare) {
  StartPrepared(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 2)));
  EXPECT_TRUE(applies_.empty());
  EXPECT_TRUE(TakeSent().at(0).message.has_refused());
}

TEST_F(ShardMachineRefusalsTest, RefusesADecisionBeforeItsPrepareIsDurable) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  EXPECT_TRUE(applies_.empty());
}

TEST_F(ShardMachineRefusalsTest, RefusesARegistrationThatDoesNotFitWithItsArithmetic) {
  Promise(kHolder, 1);
  MakeDurable();
  TakeSent();
  Plan(kHolder, RegistrationPlan(1, 1));
  machine_.OnReserved(generation_, absl::ResourceExhaustedError("100 bytes needed, 40 free"));
  Collect();
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(sent[0].message.refused().detail(), "100 bytes needed, 40 free");
  EXPECT_EQ(sent[0].message.refused().ballot().counter(), 1u);
  EXPECT_EQ(sent[0].message.refused().round(), 1u);
  EXPECT_TRUE(appends_.empty());
  Plan(kHolder, RegistrationPlan(1, 2));
  EXPECT_NE(machine_.accepted_plan(), nullptr);
}

TEST_F(ShardMachineRefusalsTest, KeepsTheFirstIndexItPromisedUnder) {
  // A probe does not bind the shard to an index.
  v1::CoordinatorToShard message = Envelope(1);
  message.set_num_shards(3);
  message.mutable_probe();
  Deliver(kHolder, message);
  message = Envelope(1);
  message.mutable_promise();
  Deliver(kHolder, message);
  ASSERT_TRUE(ended_.empty());
  appends_.clear();
  message.set_num_shards(2);
  Deliver(kHolder, message);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended_[0].status.message()),
              ::testing::StartsWith("this is shard 0 of 1, addressed as shard 0 of 2: "));
  message.set_shard(2);
  Deliver(kHolder, message);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[1].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(appends_.empty());
}

TEST_F(ShardMachineRefusalsTest, RefusesMessagesWithoutBallotOrBody) {
  v1::CoordinatorToShard message = Envelope(0);
  message.mutable_promise();
  Deliver(kHolder, message);
  Deliver(kHolder, Envelope(1));
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(sent[1].message.refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_TRUE(appends_.empty());
}

TEST_F(LostShardMachineTest, SaysThatItsStateIsLostAndNeverVotes) {
  Promise(kHolder, 1);
  MakeDurable();
  EXPECT_EQ(TakeSent().at(0).message.state().data_loss(), "shard state was in memory only");
  Plan(kHolder, RegistrationPlan(1, 1));
  Decide(kHolder, 1, Applying(RegistrationPlan(1, 1)));
  const std::vector<SendToCoordinator> sent = TakeSent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].message.refused().reason(), v1::REFUSAL_REASON_DATA_LOSS);
  EXPECT_EQ(sent[1].message.refused().reason(), v1::REFUSAL_REASON_DATA_LOSS);
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
  EXPECT_TRUE(applies_.empty());
}

}  // namespace
}  // namespace kaon::shard
