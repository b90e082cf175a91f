#include "server/coordinator/machine/step_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/ballot.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/mid_step.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Ballot BallotOf(uint64_t counter) {
  v1::Ballot ballot;
  ballot.set_counter(counter);
  ballot.set_incarnation_high(99);
  return ballot;
}

TEST(StepMachineTest, TakesAHigherBallotThenReads) {
  MachineHarness machine;
  machine.machine().OnShardConnected(0);
  machine.machine().OnShardConnected(1);
  machine.Tick();
  machine.Probed(0, 0, BallotOf(6), "b:1");
  machine.Probed(1, 100000, BallotOf(7), "b:1");
  EXPECT_GT(proto::Compare(machine.ballot(), BallotOf(7)), 0);
  EXPECT_TRUE(machine.SentPromise(0) && machine.SentPromise(1));
  EXPECT_FALSE(machine.machine().IsHolder());
  machine.State(0, {});
  EXPECT_FALSE(machine.machine().IsHolder());
  machine.State(1, {});
  EXPECT_TRUE(machine.machine().IsHolder());
}

TEST(StepMachineTest, DoesNotStandWhileEveryShardHearsItsHolder) {
  MachineHarness machine;
  machine.machine().OnShardConnected(0);
  machine.machine().OnShardConnected(1);
  for (int i = 0; i < 100; ++i) {
    machine.Tick();
    machine.Probed(0, 50, BallotOf(1), "b:1");
    machine.Probed(1, 499, BallotOf(1), "b:1");
  }
  EXPECT_FALSE(machine.SentPromise(0));
  EXPECT_EQ(machine.phase(), "standing by: b:1 holds the shards");
}

TEST(StepMachineTest, OnlyAnswersOfItsOwnBallotCount) {
  MidStep mid;
  MachineHarness machine;
  machine.Hold(mid.state());
  v1::ShardToCoordinator vote;
  ASSERT_TRUE(machine.Join(0, 1).ok() && machine.Join(1, 2).ok());
  ASSERT_TRUE(machine.Begin(0, 2).ok() && machine.Begin(1, 2).ok());
  const v1::StepPlan plan = *machine.SentPlan(0);
  machine.Vote(0, plan);
  *vote.mutable_prepared() = machine.VoteFor(plan, 1);
  v1::Ballot lower = machine.ballot();
  lower.set_counter(lower.counter() - 1);
  machine.FromShard(1, vote, lower);
  EXPECT_FALSE(machine.SentRecord(0).has_value());
  machine.FromShard(1, vote);
  EXPECT_TRUE(machine.SentRecord(0).has_value());
}

TEST(StepMachineTest, StateOfAnOlderBallotIsNotARead) {
  MachineHarness machine;
  machine.Stand();
  machine.State(0, {});
  v1::ShardToCoordinator state;
  state.mutable_state();
  machine.FromShard(1, state, BallotOf(0));
  EXPECT_FALSE(machine.machine().IsHolder());
}

TEST(StepMachineTest, MustDecideWhenAllPreparedAlike) {
  MidStep mid;
  MachineHarness machine;
  machine.Stand();
  machine.State(0, mid.prepared(0, mid.plan()));
  machine.State(1, mid.prepared(1, mid.plan()));
  const auto record = machine.SentRecord(1);
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(proto::Alike(record->plan(), mid.plan()));
  // The coordinator before would have decided the same.
  mid.old().Vote(0, mid.plan());
  mid.old().Vote(1, mid.plan());
  EXPECT_EQ(mid.old().SentRecord(0)->SerializeAsString(), record->SerializeAsString());
}

TEST(StepMachineTest, OpensARoundWhenPreparesDifferInRoundOnly) {
  MidStep mid;
  v1::StepPlan later = mid.plan();
  later.set_round(later.round() + 1);
  MachineHarness machine;
  machine.Stand();
  machine.State(0, mid.prepared(0, mid.plan()));
  machine.State(1, mid.prepared(1, later));
  EXPECT_FALSE(machine.SentRecord(0).has_value());
  EXPECT_THAT(machine.phase(), HasSubstr("step 2: waiting for rank 0, 1"));
}

TEST(StepMachineTest, ShardThatMissedTheDecisionIsSentTheRecord) {
  MidStep mid;
  mid.old().Vote(0, mid.plan());
  mid.old().Vote(1, mid.plan());
  const v1::StepRecord record = *mid.old().SentRecord(0);
  MachineHarness machine;
  machine.Stand();
  machine.State(0, StateAt(mid.old(), record));
  machine.State(1, mid.prepared(1, mid.plan()));
  EXPECT_FALSE(machine.SentRecord(0).has_value());
  ASSERT_TRUE(machine.SentRecord(1).has_value());
  EXPECT_EQ(machine.SentRecord(1)->SerializeAsString(), record.SerializeAsString());
  EXPECT_THAT(machine.phase(), HasSubstr("applying step 2: waiting for shard 1"));
  machine.Applied(1, record.plan().position());
  EXPECT_THAT(machine.phase(), HasSubstr("step 3: waiting for rank"));
}

TEST(StepMachineTest, OpensNoRoundAfterDeciding) {
  MidStep mid;
  mid.old().Vote(0, mid.plan());
  mid.old().Vote(1, mid.plan());
  ASSERT_TRUE(mid.old().SentRecord(0).has_value());
  mid.old().ClearSent();
  // A rank that restarts now may not reopen step 2.
  ASSERT_TRUE(mid.old().Join(1, 777).ok());
  const auto begun = mid.old().Begin(1, 2);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->record().plan().step().step(), 2);
  mid.old().Tick();
  EXPECT_FALSE(mid.old().SentPlan(0).has_value());
}

TEST(StepMachineTest, OpensTheNextRoundOnlyOnceEveryShardHasApplied) {
  MidStep mid;
  mid.old().Vote(0, mid.plan());
  mid.old().Vote(1, mid.plan());
  ASSERT_TRUE(mid.old().Begin(0, 3).ok() && mid.old().Begin(1, 3).ok());
  mid.old().ClearSent();
  mid.old().Applied(0, mid.plan().position());
  mid.old().Tick();
  EXPECT_FALSE(mid.old().SentPlan(0).has_value());
  mid.old().Applied(1, mid.plan().position());
  ASSERT_TRUE(mid.old().SentPlan(0).has_value());
  EXPECT_EQ(mid.old().SentPlan(0)->step().step(), 3);
}

TEST(StepMachineTest, RefusesJoinAndBeginWhenItDoesNotHold) {
  MachineHarness machine;
  machine.machine().OnShardConnected(0);
  machine.Probed(0, 0, BallotOf(1), "b:1");
  const auto joined = machine.Join(0, 1);
  EXPECT_EQ(joined.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(machine.holder_address(), "b:1");
  EXPECT_EQ(machine.Begin(0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StepMachineTest, RefusedCoordinatorEndsAwaitsNamingTheHolder) {
  MidStep mid;
  const CallId await = mid.old().Await(0, 2);
  v1::Ballot higher = mid.old().ballot();
  higher.set_counter(higher.counter() + 1);
  mid.old().Refuse(1, v1::REFUSAL_REASON_OLD_BALLOT, "promised", higher, "b:1");
  ASSERT_TRUE(mid.old().ended(await).has_value());
  EXPECT_EQ(mid.old().ended(await)->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(mid.old().holder_address(), "b:1");
  EXPECT_EQ(mid.old().Join(0, 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StepMachineTest, HolderThatDoesNotHearAShardKeepsNoWorkers) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  v1::ShardToCoordinator alive;
  alive.mutable_heartbeat();
  machine.FromShard(0, alive);
  machine.FromShard(1, alive);
  const CallId await = machine.Await(0, 2);
  for (int i = 0; i < 10; ++i) {
    machine.Tick();
    machine.FromShard(0, alive);
  }
  EXPECT_FALSE(machine.ended(await).has_value());
  machine.Tick();
  ASSERT_TRUE(machine.ended(await).has_value());
  EXPECT_EQ(machine.ended(await)->code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(machine.ended(await)->message(), HasSubstr("shard 1 not heard for 1.1s"));
  EXPECT_EQ(machine.Join(0, 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(machine.Begin(0, 2).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(machine.ended(machine.Await(0, 2))->code(), absl::StatusCode::kUnavailable);
  // Where the job is may be another's to say by now.
  EXPECT_EQ(machine.GetJob().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(machine.machine().IsHolder());
  machine.FromShard(1, alive);
  EXPECT_EQ(machine.GetJob()->applied_step(), 1u);
  EXPECT_TRUE(machine.Begin(0, 2).ok());
  EXPECT_FALSE(machine.ended(machine.Await(0, 2)).has_value());
}

TEST(StepMachineTest, RegistrationDoesNotWaitForASilentShard) {
  MachineHarness machine;
  machine.Hold();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob();
  machine.machine().Register(1, request);
  machine.Tick(absl::Seconds(2));
  EXPECT_EQ(machine.registered(1).code(), absl::StatusCode::kUnavailable);
}

TEST(StepMachineTest, WaitsLongerAfterEachRefusal) {
  MachineHarness machine(1);
  machine.machine().OnShardConnected(0);
  uint64_t silence_ms = 1000;
  // Patience is drawn from (takeover, 2 takeover) * 2^refusals: its lower end after n refusals is
  // its upper end before.
  for (int refusals = 0; refusals < 4; ++refusals, silence_ms *= 2) {
    const v1::Ballot before = machine.ballot();
    machine.Probed(0, silence_ms / 2 - 1, BallotOf(10 * refusals), "b:1");
    EXPECT_EQ(proto::Compare(machine.ballot(), before), 0) << refusals;
    machine.Probed(0, silence_ms, BallotOf(10 * refusals), "b:1");
    EXPECT_GT(proto::Compare(machine.ballot(), before), 0) << refusals;
    machine.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", BallotOf(10 * refusals + 10), "b:1");
  }
}

TEST(StepMachineTest, WorkersKeepTheirAttemptsAcrossARestartMidStep) {
  MidStep mid;
  MachineHarness machine;
  machine.Hold(mid.state(), mid.plan().ballot());
  for (const v1::Member& member : mid.plan().step().members()) {
    // Begin first: the new holder knows nobody.
    v1::BeginStepRequest begin = mid.old().BeginRequest(member.rank(), 2);
    const auto unknown = machine.Begin(begin);
    EXPECT_EQ(unknown.status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(unknown.status().message(), HasSubstr("join again"));
    v1::JoinWorkerRequest join;
    join.set_job("tiny");
    join.set_rank(member.rank());
    join.set_process_nonce(member.process_nonce());
    *join.mutable_previous_attempt() = member.attempt();
    const auto joined = machine.Join(join);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(proto::Compare(joined->attempt(), member.attempt()), 0);
    ASSERT_TRUE(machine.Begin(begin).ok());
  }
  // Rule 2: alike but for (ballot, round), so nobody pushes again.
  ASSERT_TRUE(machine.SentPlan(0).has_value());
  EXPECT_TRUE(proto::AlikeButForRound(*machine.SentPlan(0), mid.plan()));
  EXPECT_GT(proto::CompareRound(*machine.SentPlan(0), mid.plan()), 0);
}

TEST(StepMachineTest, ReJoinedWorkerReopensARound) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  const CallId old_stream = machine.Await(1, 2);
  const CallId survivor = machine.Await(0, 2);
  machine.Vote(0, mid.plan());
  machine.ClearSent();
  const auto joined = machine.Join(1, 555);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(machine.ended(old_stream)->code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(machine.SentPlan(0).has_value());
  ASSERT_TRUE(machine.Begin(1, 2).ok());
  ASSERT_TRUE(machine.SentPlan(0).has_value());
  EXPECT_EQ(machine.SentPlan(0)->round(), mid.plan().round() + 1);
  EXPECT_EQ(machine.SentPlan(0)->step().members(1).process_nonce(), 555);
  // The survivor is told of both rounds.
  ASSERT_EQ(machine.events(survivor).size(), 2);
  EXPECT_EQ(machine.events(survivor)[1].planned().round(), mid.plan().round() + 1);
}

TEST(StepMachineTest, DecidesWithTheOldMemberWhenAllPreparedBeforeTheNewOneBegan) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.Vote(0, mid.plan());
  ASSERT_TRUE(machine.Join(1, 555).ok());
  machine.Vote(1, mid.plan());
  ASSERT_TRUE(machine.SentRecord(0).has_value());
  EXPECT_EQ(machine.Begin(1, 2)->record().SerializeAsString(),
            machine.SentRecord(0)->SerializeAsString());
}

TEST(StepMachineTest, LatePreparedOfAnOlderRoundIsIgnored) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.Vote(0, mid.plan());
  ASSERT_TRUE(machine.Join(1, 555).ok());
  ASSERT_TRUE(machine.Begin(1, 2).ok());
  const v1::StepPlan reopened = *machine.SentPlan(0);
  machine.Vote(0, reopened);
  machine.Vote(1, mid.plan());
  EXPECT_FALSE(machine.SentRecord(0).has_value());
  machine.Vote(1, reopened);
  EXPECT_TRUE(machine.SentRecord(0).has_value());
}

TEST(StepMachineTest, ShardWithoutItsStateStopsTheJobWithDataLossNamingIt) {
  MidStep mid;
  const CallId await = mid.old().Await(0, 2);
  mid.old().machine().OnShardDisconnected(1);
  mid.old().machine().OnShardConnected(1);
  mid.old().State(0, mid.state());
  v1::ShardState lost;
  lost.set_data_loss("promised before, holds nothing");
  mid.old().State(1, lost);
  ASSERT_TRUE(mid.old().ended(await).has_value());
  EXPECT_EQ(mid.old().ended(await)->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(mid.old().ended(await)->message(), HasSubstr("shard 1"));
  EXPECT_EQ(mid.old().Begin(0, 2).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(mid.old().machine().Snapshot().job->stopped_reason(),
              HasSubstr("DATA_LOSS: shard 1"));
}

TEST(StepMachineTest, EmptyShardBesideATrainedOneIsDataLoss) {
  MidStep mid;
  MachineHarness machine;
  machine.Stand();
  machine.State(0, mid.state());
  machine.State(1, {});
  EXPECT_THAT(machine.phase(), HasSubstr("DATA_LOSS: shard 1: lost its state"));
}

TEST(StepMachineTest, ShardOneBehindWithoutThePrepareIsDataLoss) {
  MidStep mid;
  MachineHarness machine;
  machine.Stand();
  machine.State(0, mid.state());
  v1::ShardState behind = mid.state();
  behind.set_applied_position(behind.applied_position() - 1);
  machine.State(1, behind);
  EXPECT_THAT(machine.phase(), HasSubstr("DATA_LOSS: shard 1"));
}

TEST(StepMachineTest, ResendsWhatWasNotAnsweredOnEachTick) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.Vote(0, mid.plan());
  machine.ClearSent();
  machine.Tick();
  EXPECT_FALSE(machine.SentPlan(0).has_value());
  EXPECT_TRUE(machine.sent(0).back().has_heartbeat());
  EXPECT_TRUE(machine.SentPlan(1).has_value());
  machine.Vote(1, mid.plan());
  machine.Applied(1, mid.plan().position());
  machine.ClearSent();
  machine.Tick();
  EXPECT_TRUE(machine.SentRecord(0).has_value());
  EXPECT_FALSE(machine.SentRecord(1).has_value());
}

TEST(StepMachineTest, ResendsThePromiseOnEachTick) {
  MachineHarness machine;
  machine.Stand();
  machine.State(0, {});
  machine.ClearSent();
  machine.Tick();
  EXPECT_FALSE(machine.SentPromise(0));
  EXPECT_TRUE(machine.SentPromise(1));
}

TEST(StepMachineTest, RepeatedMessagesChangeNothing) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.Vote(0, mid.plan());
  machine.Vote(0, mid.plan());
  EXPECT_FALSE(machine.SentRecord(1).has_value());
  machine.Vote(1, mid.plan());
  const std::string record = machine.SentRecord(1)->SerializeAsString();
  machine.Vote(1, mid.plan());
  machine.State(0, mid.state());
  machine.Applied(0, 1);
  EXPECT_EQ(machine.SentRecord(1)->SerializeAsString(), record);
  EXPECT_THAT(machine.phase(), HasSubstr("applying step 2: waiting for shard 0, 1"));
}

TEST(StepMachineTest, ReadsAllShardsAgainWhenOneComesBack) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  const v1::Ballot before = machine.ballot();
  const CallId await = machine.Await(0, 2);
  machine.machine().OnShardDisconnected(1);
  machine.machine().OnShardConnected(1);
  EXPECT_GT(proto::Compare(machine.ballot(), before), 0);
  machine.ClearSent();
  machine.State(0, mid.state());
  EXPECT_FALSE(machine.SentPlan(0).has_value());
  machine.State(1, mid.state());
  // The workers have begun already: the step goes on by itself, under the same attempts.
  ASSERT_TRUE(machine.SentPlan(0).has_value());
  EXPECT_TRUE(proto::AlikeButForRound(*machine.SentPlan(0), mid.plan()));
  EXPECT_EQ(machine.events(await).size(), 2);
  EXPECT_FALSE(machine.ended(await).has_value());
}

TEST(StepMachineTest, StepBegunBeforeARereadSurvivesIt) {
  MidStep mid;
  MachineHarness& machine = mid.old();
  machine.Vote(0, mid.plan());
  machine.Vote(1, mid.plan());
  ASSERT_TRUE(machine.Begin(0, 3).ok() && machine.Begin(1, 3).ok());
  machine.machine().OnShardDisconnected(1);
  machine.machine().OnShardConnected(1);
  machine.State(0, mid.prepared(0, mid.plan()));
  machine.State(1, mid.prepared(1, mid.plan()));
  machine.Applied(0, mid.plan().position());
  machine.Applied(1, mid.plan().position());
  ASSERT_TRUE(machine.SentPlan(0).has_value());
  EXPECT_EQ(machine.SentPlan(0)->step().step(), 3);
}

// Promises as a shard does, and loses its memory never.
struct RivalShard {
  v1::Ballot promised;
  std::string holder;
  absl::Time heard = absl::InfinitePast();

  v1::ShardToCoordinator Answer(const v1::CoordinatorToShard& message, absl::Time now) {
    v1::ShardToCoordinator answer;
    const int by_ballot = proto::Compare(message.ballot(), promised);
    if (message.has_probe()) {
      answer.mutable_probed()->set_holder_address(holder);
      answer.mutable_probed()->set_holder_silent_ms(heard == absl::InfinitePast()
                                                        ? std::numeric_limits<int64_t>::max()
                                                        : absl::ToInt64Milliseconds(now - heard));
    } else if (by_ballot < 0) {
      answer.mutable_refused()->set_reason(v1::REFUSAL_REASON_OLD_BALLOT);
      answer.mutable_refused()->set_holder_address(holder);
    } else if (message.has_promise()) {
      promised = message.ballot();
      holder = message.holder_address();
      heard = now;
      answer.mutable_state();
    } else {
      heard = now;
      answer.mutable_heartbeat();
    }
    *answer.mutable_promised() = promised;
    return answer;
  }
};

TEST(StepMachineTest, OneOfTwoRivalsHoldsInTheEndAndKeepsHolding) {
  constexpr int kShards = 3;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::unique_ptr<StepMachine>> rivals;
    for (uint64_t i = 0; i < 2; ++i) {
      StepMachineOptions options;
      options.address = absl::StrCat("coordinator:", i);
      options.shard_addresses.assign(kShards, "shard:1");
      options.incarnation_high = i;
      options.seed = seed * 2 + i;
      rivals.push_back(std::make_unique<StepMachine>(options));
      for (int shard = 0; shard < kShards; ++shard) rivals[i]->OnShardConnected(shard);
    }
    std::vector<RivalShard> shards(kShards);
    absl::Time now = absl::UnixEpoch();
    v1::Ballot settled;
    for (int tick = 0; tick < 600; ++tick, now += absl::Milliseconds(50)) {
      for (auto& rival : rivals) {
        if (tick % 2 == 0) rival->Tick(now);
        for (const CoordinatorAction& action : rival->TakeActions()) {
          const auto* send = std::get_if<SendToShard>(&action);
          // Every third message is lost in the first half, in either direction.
          if (send == nullptr || (tick < 300 && random() % 3 == 0)) continue;
          const auto answer = shards[send->shard].Answer(send->message, now);
          if (tick < 300 && random() % 3 == 0) continue;
          rival->OnShardMessage(send->shard, answer, now);
        }
      }
      if (tick == 450) settled = shards[0].promised;
    }
    EXPECT_NE(rivals[0]->IsHolder(), rivals[1]->IsHolder()) << "seed " << seed;
    for (const RivalShard& shard : shards) {
      EXPECT_EQ(proto::Compare(shard.promised, settled), 0) << "seed " << seed;
    }
    EXPECT_LT(settled.counter(), 40) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kaon::coordinator
