#include "server/shard/shard_machine.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "proto/ballot.h"
#include "tests/server/shard/plans.h"

namespace kaon::shard {
namespace {

constexpr StreamId kOld = 1;
constexpr StreamId kHolder = 2;

// Carries out the machine's actions as a shard whose journal is as slow as the test wants it.
class ShardMachineTest : public testing::Test {
 protected:
  explicit ShardMachineTest(std::string data_loss = "") : machine_(std::move(data_loss)) {}

  v1::CoordinatorToShard Envelope(uint64_t counter) {
    v1::CoordinatorToShard message;
    *message.mutable_ballot() = MakeBallot(counter);
    message.set_holder_address("coordinator:" + std::to_string(counter));
    message.set_shard(0);
    message.set_num_shards(1);
    return message;
  }
  void Deliver(StreamId stream, const v1::CoordinatorToShard& message) {
    machine_.OnControl(stream, message, now_);
    Collect();
  }
  void Promise(StreamId stream, uint64_t counter) {
    v1::CoordinatorToShard message = Envelope(counter);
    message.mutable_promise();
    Deliver(stream, message);
  }
  void Plan(StreamId stream, const v1::StepPlan& plan) {
    v1::CoordinatorToShard message = Envelope(plan.ballot().counter());
    *message.mutable_plan() = plan;
    Deliver(stream, message);
  }
  void Decide(StreamId stream, uint64_t counter, const v1::StepRecord& record) {
    v1::CoordinatorToShard message = Envelope(counter);
    *message.mutable_decision() = record;
    Deliver(stream, message);
  }
  void Heartbeat(StreamId stream, uint64_t counter) {
    v1::CoordinatorToShard message = Envelope(counter);
    message.mutable_heartbeat();
    Deliver(stream, message);
  }
  void Probe(StreamId stream) {
    v1::CoordinatorToShard message = Envelope(0);
    message.mutable_probe();
    Deliver(stream, message);
  }
  // Completes every append so far, in order.
  void MakeDurable() {
    for (uint64_t token : std::exchange(appends_, {})) machine_.OnDurable(token);
    Collect();
  }
  void Fold() {
    v1::Prepared facts;
    facts.set_gradient_digest(77);
    machine_.OnFolded(generation_, facts);
    Collect();
  }
  void Apply(uint64_t position) {
    machine_.OnApplied(position);
    Collect();
  }
  void Collect() {
    for (ShardAction& action : machine_.TakeActions()) {
      if (auto* send = std::get_if<SendToCoordinator>(&action)) sent_.push_back(*send);
      if (auto* append = std::get_if<AppendJournal>(&action)) {
        appends_.push_back(append->token);
        records_.push_back(append->record);
      }
      if (auto* begin = std::get_if<BeginFolding>(&action)) {
        generation_ = begin->generation;
        ++foldings_;
      }
      if (auto* reserve = std::get_if<ReserveJob>(&action)) generation_ = reserve->generation;
      if (std::holds_alternative<RestampPlan>(action)) ++restamps_;
      if (auto* apply = std::get_if<ApplyRecord>(&action)) applies_.push_back(apply->record);
      if (auto* end = std::get_if<EndStream>(&action)) ended_.push_back(*end);
    }
  }
  std::vector<SendToCoordinator> TakeSent() { return std::exchange(sent_, {}); }
  v1::StepPlan PlanOf(const v1::Prepared& prepared) {
    v1::StepPlan plan;
    EXPECT_TRUE(plan.ParseFromString(prepared.plan()));
    return plan;
  }

  // Registered, weights loaded, `kHolder` holds ballot 1.
  void Start() {
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
    Decide(kHolder, 1, Applying(LoadPlan(1, 1)));
    Apply(2);
    MakeDurable();
    TakeSent();
    foldings_ = 0;
    applies_.clear();
    records_.clear();
  }
  // As Start, with a durable PREPARE of `plan`.
  void StartPrepared(const v1::StepPlan& plan) {
    Start();
    Plan(kHolder, plan);
    Fold();
    MakeDurable();
    TakeSent();
    foldings_ = 0;
  }

  ShardMachine machine_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<SendToCoordinator> sent_;
  std::vector<EndStream> ended_;
  std::vector<uint64_t> appends_;
  std::vector<journal::Record> records_;
  std::vector<v1::StepRecord> applies_;
  uint64_t generation_ = 0;
  int foldings_ = 0;
  int restamps_ = 0;
};

class LostShardMachineTest : public ShardMachineTest {
 protected:
  LostShardMachineTest() : ShardMachineTest("shard state was in memory only") {}
};

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

TEST_F(ShardMachineTest, RefusesAWaitingPromiseThatAHigherOneOvertook) {
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

TEST_F(ShardMachineTest, RefusesEveryKindOfMessageOfALowerBallotNamingTheHolder) {
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

TEST_F(ShardMachineTest, DropsAPlanThatOvertakesItsPromisesDurability) {
  Promise(kHolder, 1);
  Plan(kHolder, RegistrationPlan(1, 1));
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
  EXPECT_TRUE(TakeSent().empty());
}

TEST_F(ShardMachineTest, RefusesAPlanOfABallotThatIsNotPromised) {
  Start();
  Plan(kHolder, TrainPlan(1, 2, 1));
  EXPECT_EQ(machine_.accepted_plan(), nullptr);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
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

TEST_F(ShardMachineTest, SendsNoPreparedToABallotBelowThePromisedOne) {
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

TEST_F(ShardMachineTest, RefusesAPlanBelowItsPreparesBallotAndRound) {
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

TEST_F(ShardMachineTest, AnAppendOfAWithdrawnPrepareIsNoVote) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  v1::StepPlan other = TrainPlan(1, 1, 2);
  other.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  Plan(kHolder, other);
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

TEST_F(ShardMachineTest, RefusesPlansOfOtherPositionsTimelinesAndRevisions) {
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

TEST_F(ShardMachineTest, RefusesMalformedPlansForGood) {
  Start();
  v1::StepPlan version = TrainPlan(1, 1, 1);
  version.set_decide_version(2);
  v1::StepPlan weight = TrainPlan(1, 1, 1);
  weight.mutable_step()->mutable_members(0)->set_token_weight(-1);
  v1::StepPlan round = TrainPlan(1, 1, 0);
  for (const v1::StepPlan& plan : {version, weight, round}) {
    Plan(kHolder, plan);
    EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_INVALID);
    EXPECT_EQ(machine_.accepted_plan(), nullptr);
  }
}

TEST_F(ShardMachineTest, RefusesAPlanWhoseBallotIsNotTheSenders) {
  Start();
  v1::CoordinatorToShard message = Envelope(1);
  *message.mutable_plan() = TrainPlan(1, 2, 1);
  Deliver(kHolder, message);
  EXPECT_EQ(TakeSent().at(0).message.refused().reason(), v1::REFUSAL_REASON_INVALID);
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

TEST_F(ShardMachineTest, RefusesADecisionThatIsNotAlikeToItsPrepare) {
  StartPrepared(TrainPlan(1, 1, 1));
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 2)));
  EXPECT_TRUE(applies_.empty());
  EXPECT_TRUE(TakeSent().at(0).message.has_refused());
}

TEST_F(ShardMachineTest, RefusesADecisionBeforeItsPrepareIsDurable) {
  Start();
  Plan(kHolder, TrainPlan(1, 1, 1));
  Fold();
  Decide(kHolder, 1, Applying(TrainPlan(1, 1, 1)));
  EXPECT_TRUE(applies_.empty());
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

TEST_F(ShardMachineTest, RefusesARegistrationThatDoesNotFitWithItsArithmetic) {
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
  EXPECT_TRUE(appends_.empty());
  Plan(kHolder, RegistrationPlan(1, 2));
  EXPECT_NE(machine_.accepted_plan(), nullptr);
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

TEST_F(ShardMachineTest, KeepsTheFirstIndexItIsTold) {
  Probe(kHolder);
  v1::CoordinatorToShard message = Envelope(1);
  message.set_num_shards(2);
  message.mutable_promise();
  Deliver(kHolder, message);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ended_[0].status.message(), "this is shard 0 of 1, addressed as shard 0 of 2");
  message.set_shard(2);
  Deliver(kHolder, message);
  ASSERT_EQ(ended_.size(), 2u);
  EXPECT_EQ(ended_[1].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(appends_.empty());
}

TEST_F(ShardMachineTest, RefusesMessagesWithoutBallotOrBody) {
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
