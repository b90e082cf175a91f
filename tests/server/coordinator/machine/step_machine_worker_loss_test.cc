// T21: what becomes of a step when a worker is lost, under each policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/coordinator/machine/step_machine.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/mid_step.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(2);

// Three workers; one that begins has a stream open until Die.
class WorkerLossTest : public testing::Test {
 protected:
  void Train(v1::WorkerLossPolicy policy) {
    v1::JobDefinition job = TestJob(3);
    job.set_worker_loss(policy);
    if (policy != v1::WORKER_LOSS_POLICY_WAIT) {
      job.set_worker_loss_seconds(absl::ToDoubleSeconds(kPatience));
    }
    machine_.Train(job);
    machine_.ClearSent();
  }
  void BeginAndAwait(uint32_t rank, uint64_t step) {
    const auto begun = machine_.Begin(rank, step);
    ASSERT_TRUE(begun.ok()) << begun.status();
    streams_[rank] = machine_.Await(rank, step);
  }
  void Die(uint32_t rank) { machine_.HangUp(streams_[rank]); }
  // Shards answer all the time.
  void Pass(absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += absl::Milliseconds(100)) {
      for (int i = 0; i < machine_.num_shards(); ++i) machine_.Applied(i, 0);
      machine_.Tick();
    }
  }
  // Of the newest plan sent; empty if none.
  std::vector<uint32_t> Planned() {
    std::vector<uint32_t> ranks;
    const std::optional<v1::StepPlan> plan = machine_.SentPlan(0);
    if (!plan) return ranks;
    for (const v1::Member& member : plan->step().members()) ranks.push_back(member.rank());
    return ranks;
  }
  int NumPlanned(uint32_t rank) {
    int planned = 0;
    for (const v1::StepEvent& event : machine_.events(streams_[rank])) {
      planned += event.has_planned();
    }
    return planned;
  }

  MachineHarness machine_;
  std::map<uint32_t, CallId> streams_;
};

TEST_F(WorkerLossTest, WaitWaitsForEver) {
  Train(v1::WORKER_LOSS_POLICY_WAIT);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(absl::Minutes(10));
  EXPECT_THAT(Planned(), ElementsAre());
  EXPECT_EQ(machine_.phase(), "step 1: waiting for rank 1");
}

TEST_F(WorkerLossTest, ShrinkGoesOnWithoutWhoeverDidNotBegin) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(kPatience);
  EXPECT_THAT(Planned(), ElementsAre());
  Pass(absl::Milliseconds(100));
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
  EXPECT_EQ(NumPlanned(0), 1);
  EXPECT_THAT(machine_.phase(), HasSubstr("without rank 1 (lost)"));
  machine_.VoteAndApply();
  // Nobody waits for it any more.
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 2);
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
}

TEST_F(WorkerLossTest, ShrinkOpensAnotherRoundWithoutWhoeverDiesWhileItPushes) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  const v1::StepPlan first = *machine_.SentPlan(0);
  // Its vote is for the first round alone.
  machine_.Vote(0, first);
  Die(1);
  Pass(kPatience);
  EXPECT_THAT(Planned(), ElementsAre(0, 1, 2));
  Pass(absl::Milliseconds(100));
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
  EXPECT_EQ(machine_.SentPlan(0)->round(), 2);
  EXPECT_EQ(NumPlanned(2), 2);
  machine_.Vote(1, first);
  EXPECT_FALSE(machine_.SentRecord(0).has_value());
  const v1::StepRecord record = machine_.VoteAndApply();
  EXPECT_EQ(record.plan().step().members_size(), 2);
}

TEST_F(WorkerLossTest, AWorkerWithAStreamOpenIsNotLostHoweverLongItTakes) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  Pass(absl::Minutes(10));
  EXPECT_EQ(machine_.SentPlan(0)->round(), 1);
}

TEST_F(WorkerLossTest, AWorkerThatCallsInTimeIsNotLost) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  for (int i = 0; i < 5; ++i) {
    Die(1);
    Pass(kPatience - absl::Milliseconds(200));
    ASSERT_TRUE(machine_.Join(1, 101).ok());
  }
  EXPECT_EQ(machine_.SentPlan(0)->round(), 1);
}

// T8: a coordinator that was frozen for an hour.
TEST_F(WorkerLossTest, NobodyIsLostForTimeInWhichTheCoordinatorDidNotRun) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(absl::Seconds(1));
  // It did not hear the shards either: whoever follows the step is sent away, and comes back.
  machine_.Tick(absl::Hours(1));
  for (int i = 0; i < machine_.num_shards(); ++i) machine_.Applied(i, 0);
  EXPECT_TRUE(absl::IsUnavailable(*machine_.ended(streams_[0])));
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(kPatience);
  EXPECT_THAT(Planned(), ElementsAre());
  Pass(absl::Milliseconds(100));
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
}

TEST_F(WorkerLossTest, AProcessInItsPlaceTakesPartAgainFromTheNextStepOn) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(kPatience + absl::Milliseconds(100));
  ASSERT_THAT(Planned(), ElementsAre(0, 2));
  ASSERT_TRUE(machine_.Join(1, 500).ok());
  BeginAndAwait(1, 1);
  EXPECT_EQ(machine_.SentPlan(0)->round(), 1);
  EXPECT_EQ(NumPlanned(1), 0);
  const v1::StepRecord record = machine_.VoteAndApply();
  // It hears of the decision like everybody else.
  ASSERT_EQ(machine_.events(streams_[1]).size(), 1u);
  EXPECT_EQ(machine_.events(streams_[1])[0].decided().SerializeAsString(),
            record.SerializeAsString());
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 2);
  EXPECT_THAT(Planned(), ElementsAre());
  BeginAndAwait(1, 2);
  EXPECT_THAT(Planned(), ElementsAre(0, 1, 2));
}

TEST_F(WorkerLossTest, WhoeverIsBackTakesPartInARoundThatIsNeededAnyway) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(kPatience + absl::Milliseconds(100));
  BeginAndAwait(1, 1);
  Die(0);
  Pass(kPatience + absl::Milliseconds(100));
  EXPECT_THAT(Planned(), ElementsAre(1, 2));
  EXPECT_EQ(machine_.SentPlan(0)->round(), 2);
}

// Rule 6: "Begin(t) of one attempt is immutable", also for one that was lost.
TEST_F(WorkerLossTest, ALostAttemptCannotBeginTheStepWithOtherValues) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  Die(1);
  Pass(kPatience + absl::Milliseconds(100));
  ASSERT_THAT(Planned(), ElementsAre(0, 2));
  v1::BeginStepRequest other = machine_.BeginRequest(1, 1);
  other.set_token_weight(9);
  EXPECT_EQ(machine_.Begin(other).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(WorkerLossTest, SomebodyMustBeLeft) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  for (const uint32_t rank : {0, 1, 2}) Die(rank);
  Pass(absl::Minutes(10));
  EXPECT_EQ(machine_.SentPlan(0)->round(), 1);
  // The one that comes back is enough.
  BeginAndAwait(1, 1);
  Pass(kPatience + absl::Milliseconds(100));
  EXPECT_THAT(Planned(), ElementsAre(1));
}

TEST_F(WorkerLossTest, TheNextHolderFindsOutForItself) {
  Train(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  const v1::StepRecord record = machine_.VoteAndApply();
  MachineHarness next(2, "coordinator-b:1");
  v1::Ballot promised = machine_.ballot();
  next.Hold(StateAt(machine_, record), promised);
  ASSERT_TRUE(next.Join(2, 7).ok());
  ASSERT_TRUE(next.Begin(2, 2).ok());
  next.Await(2, 2);
  for (absl::Duration passed; passed <= kPatience; passed += absl::Milliseconds(100)) {
    EXPECT_FALSE(next.SentPlan(0).has_value());
    for (int i = 0; i < 2; ++i) next.Applied(i, 0);
    next.Tick();
  }
  ASSERT_TRUE(next.SentPlan(0).has_value()) << next.phase();
  ASSERT_EQ(next.SentPlan(0)->step().members_size(), 1);
  EXPECT_EQ(next.SentPlan(0)->step().members(0).rank(), 2u);
  EXPECT_THAT(next.phase(), HasSubstr("without rank 0, 1 (lost)"));
}

TEST_F(WorkerLossTest, FailStopsTheJobNamingTheRank) {
  Train(v1::WORKER_LOSS_POLICY_FAIL);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  const v1::StepRecord record = machine_.VoteAndApply();
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 2);
  Die(1);
  Pass(kPatience + absl::Milliseconds(100));
  const std::string why =
      "rank 1 was lost: step 2 waited 2 s for it (worker_loss is fail); restore the job from a "
      "checkpoint to go on";
  EXPECT_EQ(machine_.phase(), "stopped: FAILED_PRECONDITION: " + why);
  EXPECT_EQ(machine_.ended(streams_[0]), absl::FailedPreconditionError(why));
  EXPECT_EQ(machine_.Join(1, 500).status(), absl::FailedPreconditionError(why));
  // Reading the shards again changes nothing about it.
  const v1::ShardState state = StateAt(machine_, record);
  machine_.machine().OnShardDisconnected(0);
  machine_.machine().OnShardConnected(0);
  for (int i = 0; i < machine_.num_shards(); ++i) machine_.State(i, state);
  EXPECT_EQ(machine_.phase(), "stopped: FAILED_PRECONDITION: " + why);
}

// The other holder saw the rank come back, and trained on in the same timeline.
TEST_F(WorkerLossTest, ALossIsOverOnceAnotherHolderHasTrainedOn) {
  Train(v1::WORKER_LOSS_POLICY_FAIL);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  const v1::ShardState at_one = StateAt(machine_, machine_.VoteAndApply());
  MachineHarness other(2, "coordinator-b:1");
  other.Hold(at_one, machine_.ballot());
  for (const uint32_t rank : {0, 1, 2}) {
    BeginAndAwait(rank, 2);
    ASSERT_TRUE(other.Join(rank, 7).ok());
    ASSERT_TRUE(other.Begin(rank, 2).ok());
  }
  Die(1);
  Pass(kPatience + absl::Milliseconds(100));
  const auto hold_again = [this](const v1::ShardState& state) {
    v1::Ballot higher = machine_.ballot();
    higher.set_counter(higher.counter() + 1);
    machine_.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", higher, "coordinator-b:1");
    machine_.Probed(0, absl::ToInt64Milliseconds(absl::Minutes(10)), higher, "coordinator-b:1");
    for (int i = 0; i < machine_.num_shards(); ++i) machine_.State(i, state);
  };
  hold_again(at_one);
  EXPECT_THAT(machine_.phase(), HasSubstr("stopped"));
  hold_again(StateAt(other, other.VoteAndApply()));
  EXPECT_TRUE(machine_.machine().IsHolder());
  EXPECT_THAT(machine_.phase(), Not(HasSubstr("stopped")));
  EXPECT_TRUE(machine_.Join(1, 500).ok());
}

// Ranks that are heard all the time, and the step waits for them nevertheless.
class StepSecondsTest : public WorkerLossTest {
 protected:
  void TrainWithDeadline(v1::WorkerLossPolicy policy) {
    v1::JobDefinition job = TestJob(3);
    job.set_worker_loss(policy);
    job.set_worker_loss_seconds(absl::ToDoubleSeconds(kPatience));
    job.set_step_seconds(absl::ToDoubleSeconds(kDeadline));
    machine_.Train(job);
    machine_.ClearSent();
  }
  // Both shards lack the gradients of these ranks, and say so whenever they are asked.
  void PassWithAwaited(absl::Duration time, const std::vector<uint32_t>& ranks) {
    for (absl::Duration passed; passed < time; passed += absl::Milliseconds(100)) {
      Pass(absl::Milliseconds(100));
      for (const int shard : std::vector<int>(machine_.asked())) {
        machine_.Awaited(shard, ranks, *machine_.SentPlan(0));
      }
    }
  }
  // One half of a second of a process that joins anew, begins the step and follows it.
  void JoinAnew(uint32_t rank, uint64_t step) {
    if (machine_.Join(rank, ++nonce_).ok()) BeginAndAwait(rank, step);
    PassWithAwaited(absl::Milliseconds(500), {0, 1, 2});
  }

  static constexpr absl::Duration kDeadline = absl::Seconds(10);
  uint64_t nonce_ = 1000;
};

// The attack: the others push for each round, and none of their pushes is ever of use.
TEST_F(StepSecondsTest, AWorkerThatJoinsTwiceASecondIsLostHoweverMuchIsHeardOfIt) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  int halves = 0;
  for (; machine_.machine().lost_workers().empty() && halves < 60; ++halves) JoinAnew(1, 1);
  // One restart is free.
  EXPECT_GE(halves, 20);
  EXPECT_LE(halves, 24);
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
  EXPECT_THAT(machine_.phase(), HasSubstr("without rank 1 (lost: step 1 waited 10 s for its "
                                          "gradients (step_seconds))"));
  // It goes on with that, and the round of the others goes on as well.
  const uint64_t round = machine_.SentPlan(0)->round();
  for (int i = 0; i < 10; ++i) JoinAnew(1, 1);
  EXPECT_EQ(machine_.SentPlan(0)->round(), round);
  EXPECT_EQ(machine_.VoteAndApply().plan().step().members_size(), 2);
}

TEST_F(StepSecondsTest, AWorkerThatBeginsAndDoesNotPushIsLost) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  // Rank 2 may have to wait for rank 1, and is not to blame.
  PassWithAwaited(kDeadline, {1, 2});
  EXPECT_EQ(NumPlanned(0), 1);
  PassWithAwaited(absl::Seconds(2), {1, 2});
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
  // Nor is a worker that needs a while for the next round.
  PassWithAwaited(kDeadline - absl::Seconds(1), {2});
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
  EXPECT_EQ(machine_.VoteAndApply().plan().step().members_size(), 2);
}

TEST_F(StepSecondsTest, AWorkerThatIsLateAgainIsKeptAwayUntilItTrains) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  const auto lose_rank_1 = [&](uint64_t step) {
    for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, step);
    for (int i = 0; machine_.machine().lost_workers().empty() && i < 200; ++i) {
      PassWithAwaited(absl::Milliseconds(100), {1});
    }
    EXPECT_EQ(machine_.VoteAndApply().plan().step().members_size(), 2);
  };
  lose_rank_1(1);
  // The first time is free.
  lose_rank_1(2);
  const absl::Status kept = machine_.Begin(1, 3).status();
  EXPECT_EQ(kept.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(kept.message()), HasSubstr("rank 1 was lost again because it was late"));
  EXPECT_EQ(machine_.Join(1, 5000).status(), kept);
  Pass(absl::Seconds(1));
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 3);
  EXPECT_EQ(machine_.VoteAndApply().plan().step().members_size(), 3);
  lose_rank_1(4);
  EXPECT_TRUE(machine_.Join(1, 5000).ok());
}

TEST_F(StepSecondsTest, AWorkerThatJoinsAgainAndNeverBeginsIsLost) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  for (absl::Duration passed; passed < kDeadline - absl::Seconds(1); passed += absl::Seconds(1)) {
    ASSERT_TRUE(machine_.Join(1, 101).ok());
    Pass(absl::Seconds(1));
  }
  EXPECT_THAT(Planned(), ElementsAre());
  ASSERT_TRUE(machine_.Join(1, 101).ok());
  Pass(absl::Seconds(1));
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
}

TEST_F(StepSecondsTest, NobodyIsLostWhileNoOtherWorkerWaits) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  for (const uint32_t rank : {0, 2}) Die(rank);
  for (int i = 0; i < 60; ++i) {
    // Else they would be lost for their silence.
    for (const uint32_t rank : {0, 2}) ASSERT_TRUE(machine_.Join(rank, 100 + rank).ok());
    PassWithAwaited(absl::Seconds(1), {1});
  }
  EXPECT_TRUE(machine_.machine().lost_workers().empty());
}

// The shards have not got the plan of the round, and say what they lack of an earlier one.
TEST_F(StepSecondsTest, AnAnswerAboutAnotherPlanCountsForNothing) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  const v1::StepPlan earlier_round = *machine_.SentPlan(0);
  ASSERT_TRUE(machine_.Join(2, 7).ok());
  BeginAndAwait(2, 1);
  const v1::StepPlan open = *machine_.SentPlan(0);
  ASSERT_NE(earlier_round.round(), open.round());
  v1::StepPlan other_entry = open;
  other_entry.set_position(open.position() - 1);
  v1::StepPlan other_ballot = open;
  other_ballot.mutable_ballot()->set_counter(open.ballot().counter() + 1);
  for (const v1::StepPlan& plan : {earlier_round, other_entry, other_ballot}) {
    for (int i = 0; i < 200; ++i) {
      Pass(absl::Milliseconds(100));
      for (const int shard : {0, 1}) machine_.Awaited(shard, {1}, plan);
    }
    EXPECT_EQ(machine_.SentPlan(0)->round(), open.round());
  }
  EXPECT_FALSE(machine_.asked().empty());
}

// Shard 0 named rank 0 before it voted; rank 1 never pushes to shard 1.
TEST_F(StepSecondsTest, AShardThatHasVotedAccusesNobody) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  PassWithAwaited(absl::Seconds(2), {0, 1, 2});
  machine_.Vote(0, *machine_.SentPlan(0));
  for (int i = 0; i < 130; ++i) {
    Pass(absl::Milliseconds(100));
    machine_.Awaited(0, {0, 1, 2}, *machine_.SentPlan(0));
    machine_.Awaited(1, {1}, *machine_.SentPlan(0));
  }
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
}

TEST_F(StepSecondsTest, FailSaysWhatTheStepWaitedFor) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_FAIL);
  for (const uint32_t rank : {0, 1, 2}) BeginAndAwait(rank, 1);
  PassWithAwaited(kDeadline + absl::Seconds(2), {1});
  EXPECT_EQ(machine_.phase(),
            "stopped: FAILED_PRECONDITION: rank 1 was lost: step 1 waited 10 s for its gradients "
            "(step_seconds) (worker_loss is fail); restore the job from a checkpoint to go on");
}

TEST_F(StepSecondsTest, NobodyIsLostWhileTheJobIsPaused) {
  TrainWithDeadline(v1::WORKER_LOSS_POLICY_SHRINK);
  v1::SetGroupRequest request;
  request.add_settings()->set_field("paused");
  const auto set = [&](const char* paused) {
    request.mutable_settings(0)->set_value(paused);
    request.set_expected_revision(machine_.machine().Snapshot().config_revision);
    machine_.SetGroup(request);
    machine_.VoteAndApply();
  };
  set("true");
  for (const uint32_t rank : {0, 2}) BeginAndAwait(rank, 1);
  Pass(absl::Minutes(10));
  EXPECT_EQ(machine_.phase(), "step 1: paused until kaonctl resume");
  set("false");
  Pass(kPatience);
  EXPECT_THAT(Planned(), ElementsAre());
  Pass(absl::Milliseconds(200));
  EXPECT_THAT(Planned(), ElementsAre(0, 2));
}

}  // namespace
}  // namespace kaon::coordinator
