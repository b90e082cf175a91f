#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/mid_step.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

v1::ParameterGroup Adamw(MachineHarness& harness) {
  return harness.machine().Snapshot().job->definition().groups(1);
}

absl::Status StatusOf(MachineHarness& harness, CallId call) {
  const auto answer = harness.set(call);
  EXPECT_TRUE(answer.has_value()) << harness.phase();
  return answer ? answer->status() : absl::UnknownError("open");
}

TEST(GroupChangeTest, IsPlannedAtOnceWhileNoStepIsOpen) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.SetRate("0.5", 1);
  EXPECT_FALSE(harness.set(call));
  const v1::StepPlan plan = *harness.SentPlan(1);
  EXPECT_EQ(plan.position(), 3u);
  EXPECT_EQ(plan.config_revision(), 1u);
  EXPECT_EQ(plan.group_change().settings(0).position(), 3u);
  EXPECT_THAT(harness.phase(), HasSubstr("change of group adamw round 1"));
  harness.VoteAndApply();
  const auto answer = harness.set(call);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->config_revision(), 3u);
  EXPECT_EQ((*answer)->group().lr(), 0.5);
  const v1::JobDescription job = *harness.machine().Snapshot().job;
  EXPECT_EQ(job.config_revision(), 3u);
  EXPECT_EQ(job.changed(0).value(), "0.5");
  EXPECT_EQ(job.requested().groups(1).lr(), 0.001);
}

TEST(GroupChangeTest, WaitsForTheOpenStepAndComesBeforeTheNext) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId call = harness.SetRate("0.5", 1);
  ASSERT_TRUE(harness.SentPlan(0)->has_step());
  harness.Tick();
  EXPECT_TRUE(harness.SentPlan(0)->has_step());
  const v1::StepRecord first = harness.VoteAndApply();
  EXPECT_EQ(first.plan().step().rates(1).learning_rate(), 0.001);
  harness.Tick();
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change());
  EXPECT_FALSE(harness.set(call));
  // Step 2 is begun meanwhile: it waits for the change.
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 2).ok());
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change());
  const v1::StepPlan change = *harness.SentPlan(0);
  EXPECT_EQ(change.position(), 4u);
  for (int shard : {0, 1}) harness.Vote(shard, change);
  harness.Applied(0, 4);
  // Answered, and the step planned, only when every shard has applied it.
  EXPECT_FALSE(harness.set(call));
  harness.ClearSent();
  harness.Applied(1, 4);
  EXPECT_TRUE(StatusOf(harness, call).ok());
  const v1::StepPlan second = *harness.SentPlan(0);
  EXPECT_EQ(second.position(), 5u);
  EXPECT_EQ(second.config_revision(), 4u);
  EXPECT_EQ(second.step().step(), 2u);
  EXPECT_EQ(second.step().rates(1).learning_rate(), 0.5);
  // What the step record decides goes on, not what the change's does.
  EXPECT_EQ(second.step().loss_scale(), 1);
}

TEST(GroupChangeTest, OneIsUnderWayAtATime) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId first = harness.SetRate("0.5", 1);
  EXPECT_EQ(StatusOf(harness, harness.SetRate("0.25", 1)).code(), absl::StatusCode::kAborted);
  harness.VoteAndApply();
  harness.Tick();
  // The first one is open now, its caller gone.
  harness.machine().CancelCall(first);
  EXPECT_THAT(StatusOf(harness, harness.SetRate("0.25", 1)).message(),
              HasSubstr("another change of it is under way"));
  harness.VoteAndApply();
  EXPECT_FALSE(harness.set(first));
  EXPECT_EQ(Adamw(harness).lr(), 0.5);
}

v1::SetGroupRequest RequestOf(uint64_t request_id) {
  v1::SetGroupRequest request;
  request.set_group("adamw");
  request.add_settings()->set_field("lr");
  request.mutable_settings(0)->set_value("0.5");
  request.set_expected_revision(1);
  request.set_request_id(request_id);
  return request;
}

// 2.2: "Each control entry carries its client's request id ... so a retry after a takeover is not
// applied twice".
TEST(GroupChangeTest, ARepetitionWaitsForTheEntryOfItsRequest) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  // Before it is planned, while it is open, and after its caller is gone.
  const CallId first = harness.SetGroup(RequestOf(7));
  const CallId second = harness.SetGroup(RequestOf(7));
  EXPECT_EQ(StatusOf(harness, first).code(), absl::StatusCode::kUnavailable);
  harness.VoteAndApply();
  harness.Tick();
  const v1::StepPlan plan = *harness.SentPlan(0);
  EXPECT_EQ(plan.group_change().request_id(), 7u);
  EXPECT_EQ(StatusOf(harness, harness.SetGroup(RequestOf(8))).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(StatusOf(harness, harness.SetGroup(RequestOf(0))).code(), absl::StatusCode::kAborted);
  const CallId third = harness.SetGroup(RequestOf(7));
  EXPECT_EQ(StatusOf(harness, second).code(), absl::StatusCode::kUnavailable);
  harness.machine().CancelCall(third);
  const CallId fourth = harness.SetGroup(RequestOf(7));
  EXPECT_FALSE(harness.set(fourth));
  harness.VoteAndApply();
  const auto answer = harness.set(fourth);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->config_revision(), plan.position());
  harness.ClearSent();
  harness.Tick();
  EXPECT_FALSE(harness.SentPlan(0));
}

TEST(GroupChangeTest, ARepetitionWaitsForWhatTheNextHolderFinishes) {
  MachineHarness harness;
  harness.Train();
  harness.SetGroup(RequestOf(7));
  const v1::StepPlan plan = *harness.SentPlan(0);
  MachineHarness next(2, "coordinator-b:1");
  next.Stand(plan.ballot());
  for (int shard : {0, 1}) {
    v1::ShardState state = StateAfterStep(0);
    *state.mutable_prepared() = harness.VoteFor(plan, shard);
    next.State(shard, state);
  }
  ASSERT_TRUE(next.SentRecord(0)->plan().has_group_change());
  const CallId again = next.SetGroup(RequestOf(7));
  EXPECT_FALSE(next.set(again));
  for (int shard : {0, 1}) next.Applied(shard, 3);
  EXPECT_TRUE(StatusOf(next, again).ok());
  // Applied, it is to be found in the log from there on.
  next.ClearSent();
  EXPECT_EQ(StatusOf(next, next.SetGroup(RequestOf(7))).code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(next.SentPlan(0));
}

TEST(GroupChangeTest, IsDroppedWithItsCallerBeforeItIsPlanned) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  harness.machine().CancelCall(harness.SetRate("0.5", 1));
  harness.VoteAndApply();
  harness.Tick();
  EXPECT_FALSE(harness.SentPlan(0));
  EXPECT_EQ(Adamw(harness).lr(), 0.001);
}

TEST(GroupChangeTest, PlansNothingThatIsRefused) {
  MachineHarness harness;
  EXPECT_EQ(StatusOf(harness, harness.SetRate("1", 0)).code(), absl::StatusCode::kUnavailable);
  harness.Train();
  EXPECT_EQ(StatusOf(harness, harness.SetRate("-1", 1)).code(), absl::StatusCode::kInvalidArgument);
  v1::SetGroupRequest request = RequestOf(7);
  request.set_job("other");
  EXPECT_EQ(StatusOf(harness, harness.SetGroup(request)).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(harness.SentPlan(0));
}

TEST(GroupChangeTest, NamesTheHolderWhenAnotherHoldsTheShards) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.SetRate("0.5", 1);
  v1::Ballot higher = harness.ballot();
  higher.set_counter(higher.counter() + 1);
  harness.Refuse(0, v1::REFUSAL_REASON_OLD_BALLOT, "", higher, "coordinator-b:1");
  EXPECT_EQ(StatusOf(harness, call).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(harness.holder_address(), "coordinator-b:1");
  EXPECT_EQ(StatusOf(harness, harness.SetRate("0.5", 1)).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A shard of another build: nothing was decided.
TEST(GroupChangeTest, AChangeAShardRefusesIsGivenUpAndTheStepGoesOn) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.SetRate("0.5", 1);
  const v1::StepPlan change = *harness.SentPlan(0);
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId await = harness.Await(0, 1);
  harness.ClearSent();
  harness.RefusePlan(0, "no such option", change);
  EXPECT_EQ(StatusOf(harness, call).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf(harness, call).message(), "shard 0: no such option");
  ASSERT_TRUE(harness.SentPlan(0));
  EXPECT_EQ(harness.SentPlan(0)->position(), change.position());
  EXPECT_EQ(harness.SentPlan(0)->round(), change.round() + 1);
  // A copy that comes late is about the change, not about the step.
  harness.RefusePlan(0, "no such option", change);
  harness.VoteAndApply();
  ASSERT_TRUE(harness.ended(await));
  EXPECT_TRUE(harness.ended(await)->ok()) << *harness.ended(await);
  EXPECT_EQ(Adamw(harness).lr(), 0.001);
}

// What every shard has prepared must be decided (2.1 rule 3), whatever it is.
TEST(GroupChangeTest, ANewHolderDecidesAPreparedChangeAndTellsTheRetry) {
  MidStep source;
  MachineHarness& old = source.old();
  const v1::StepRecord second = old.VoteAndApply();
  const v1::ShardState state = StateAt(old, second);
  old.SetRate("0.5", 1);
  const v1::StepPlan change = *old.SentPlan(0);
  MachineHarness next(2, "coordinator-b:1");
  next.Stand(old.ballot());
  for (int shard : {0, 1}) {
    v1::ShardState prepared = state;
    prepared.mutable_prepared()->set_plan(change.SerializeAsString());
    next.State(shard, prepared);
  }
  ASSERT_TRUE(next.SentRecord(0));
  EXPECT_EQ(next.SentRecord(0)->plan().SerializeAsString(), change.SerializeAsString());
  EXPECT_EQ(next.SentRecord(0)->decision().outcome(), v1::OUTCOME_APPLY);
  for (int shard : {0, 1}) next.Applied(shard, change.position());
  const absl::Status retry = StatusOf(next, next.SetRate("0.5", 1));
  EXPECT_EQ(retry.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(retry.message(), HasSubstr("config_revision is 5; the change is in place"));
  // Step 2 was in the state it read: its record needs no reading.
  EXPECT_TRUE(next.reads().empty());
}

// A worker that lost the answer to its step asks a holder that found a change as the newest entry.
TEST(GroupChangeTest, TheRecordOfTheStepBeforeAChangeIsReadForThoseWhoAskForIt) {
  MidStep source;
  MachineHarness& old = source.old();
  const v1::StepRecord step = old.VoteAndApply();
  old.SetRate("0.5", 1);
  const v1::StepRecord first = old.VoteAndApply();
  old.SetRate("0.25", 5);
  const v1::StepRecord second = old.VoteAndApply();
  MachineHarness next(2, "coordinator-b:1");
  next.Hold(StateAt(old, second), old.ballot());
  ASSERT_TRUE(next.Join(0, 100).ok());
  EXPECT_EQ(next.Begin(0, 2).status().code(), absl::StatusCode::kUnavailable);
  const CallId await = next.Await(0, 2);
  EXPECT_FALSE(next.ended(await));
  EXPECT_EQ(next.reads().back(), 5u);
  next.RecordRead(5, absl::UnavailableError("shard is away"));
  next.ClearSent();
  next.Tick();
  EXPECT_EQ(next.reads().back(), 5u);
  next.RecordRead(5, first);
  EXPECT_EQ(next.reads().back(), 4u);
  next.RecordRead(4, step);
  ASSERT_TRUE(next.ended(await) && next.ended(await)->ok());
  EXPECT_EQ(next.events(await).back().decided().SerializeAsString(), step.SerializeAsString());
  EXPECT_EQ(next.Begin(0, 2)->record().SerializeAsString(), step.SerializeAsString());
  next.ClearSent();
  next.Tick();
  EXPECT_TRUE(next.reads().empty());
}

TEST(GroupChangeTest, ARestartedWorkerAttachesWithTheDefinitionItHasAlwaysHad) {
  MachineHarness harness;
  harness.Train();
  harness.SetRate("0.5", 1);
  harness.VoteAndApply();
  const auto attached = harness.Register(TestJob());
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ(attached->definition().groups(1).lr(), 0.5);
  EXPECT_EQ(attached->changed_size(), 1);
  v1::JobDefinition other = TestJob();
  other.mutable_groups(1)->set_lr(0.5);
  EXPECT_EQ(harness.Register(other).status().code(), absl::StatusCode::kAlreadyExists);
}

v1::SetGroupRequest JobRequest(const std::string& field, const std::string& value,
                               uint64_t revision) {
  v1::SetGroupRequest request;
  request.set_expected_revision(revision);
  request.add_settings()->set_field(field);
  request.mutable_settings(0)->set_value(value);
  return request;
}

// Rank 1 does not come back: what lets the job go on without it must not wait for it.
TEST(GroupChangeTest, AChangeOfTheWorkersTakesThePlaceOfAStepThatIsNotDecided) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId stays = harness.Await(0, 1);
  const CallId leaves = harness.Await(1, 1);
  const v1::StepPlan step = *harness.SentPlan(0);
  harness.Vote(0, step);
  const CallId call = harness.SetGroup(JobRequest("world_size", "1", 1));
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change()) << harness.phase();
  EXPECT_THAT(harness.phase(), HasSubstr("change of the job round 2"));
  harness.Vote(1, step);
  EXPECT_FALSE(harness.SentRecord(0));
  harness.VoteAndApply();
  ASSERT_TRUE(StatusOf(harness, call).ok());
  EXPECT_EQ((*harness.set(call))->workers().world_size(), 1u);
  ASSERT_TRUE(harness.ended(leaves));
  EXPECT_EQ(harness.ended(leaves)->message(),
            "rank is 1, must be 0 .. 0 (the job's world_size is 1)");
  // Rank 0 has begun already. It tells rounds apart by their number.
  harness.Tick();
  const v1::StepPlan next = *harness.SentPlan(0);
  EXPECT_EQ(next.step().members_size(), 1);
  EXPECT_EQ(next.position(), step.position() + 1);
  EXPECT_GT(next.round(), step.round());
  EXPECT_FALSE(harness.ended(stays));
  EXPECT_EQ(harness.events(stays).back().planned().round(), next.round());
  harness.VoteAndApply();
  EXPECT_EQ(StatusOf(harness, harness.SetGroup(JobRequest("world_size", "1", 1))).message(),
            "expected_revision is 1, config_revision is 3; the change is in place");
  // Back again: the step waits for the new rank.
  harness.SetGroup(JobRequest("world_size", "3", 3));
  harness.VoteAndApply();
  ASSERT_TRUE(harness.Begin(0, 2).ok());
  EXPECT_THAT(harness.phase(), HasSubstr("step 2: waiting for rank 1, 2"));
  // With the definition that there is as with the one there was; not with another.
  EXPECT_TRUE(harness.Register(TestJob(2)).ok());
  EXPECT_TRUE(harness.Register(TestJob(3)).ok());
  const absl::Status other = harness.Register(TestJob(4)).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(other.message(), HasSubstr("kaonctl job set world_size=4"));
}

class PauseTest : public testing::Test {
 protected:
  PauseTest() { harness_.Train(); }
  // The entry is there once every shard has voted for it.
  void Set(const char* paused) {
    const uint64_t revision = harness_.machine().Snapshot().config_revision;
    const CallId call = harness_.SetGroup(JobRequest("paused", paused, revision));
    harness_.VoteAndApply();
    ASSERT_TRUE(StatusOf(harness_, call).ok());
  }
  void Pass() {
    for (int i = 0; i < 20; ++i) {
      for (int shard : {0, 1}) harness_.Applied(shard, 0);
      harness_.Tick();
    }
  }

  MachineHarness harness_;
};

TEST_F(PauseTest, NoStepIsPlannedUntilTheJobIsResumed) {
  Set("true");
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness_.Begin(rank, 1).ok());
  const CallId await = harness_.Await(0, 1);
  Pass();
  EXPECT_FALSE(harness_.SentPlan(0));
  EXPECT_EQ(harness_.phase(), "step 1: paused until kaonctl resume");
  EXPECT_FALSE(harness_.ended(await));
  Set("false");
  // The workers have begun already, and follow the step.
  Pass();
  ASSERT_TRUE(harness_.SentPlan(0) && harness_.SentPlan(0)->has_step()) << harness_.phase();
  ASSERT_EQ(harness_.events(await).size(), 1u);
  harness_.VoteAndApply();
  EXPECT_EQ(harness_.ended(await), absl::OkStatus());
}

// It is not decided by half of the votes, and planned anew after the pause.
TEST_F(PauseTest, TakesThePlaceOfAStepThatIsNotDecided) {
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness_.Begin(rank, 1).ok());
  const v1::StepPlan step = *harness_.SentPlan(0);
  harness_.Vote(0, step);
  Set("true");
  harness_.Vote(1, step);
  Pass();
  EXPECT_FALSE(harness_.SentRecord(0));
  EXPECT_FALSE(harness_.SentPlan(0));
  Set("false");
  Pass();
  ASSERT_TRUE(harness_.SentPlan(0) && harness_.SentPlan(0)->has_step()) << harness_.phase();
  EXPECT_GT(harness_.SentPlan(0)->round(), step.round());
}

TEST_F(PauseTest, ADecidedStepEndsNormally) {
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness_.Begin(rank, 1).ok());
  const v1::StepPlan step = *harness_.SentPlan(0);
  for (int shard : {0, 1}) harness_.Vote(shard, step);
  ASSERT_TRUE(harness_.SentRecord(0));
  harness_.ClearSent();
  const CallId call = harness_.SetGroup(JobRequest("paused", "true", 1));
  for (int shard : {0, 1}) harness_.Applied(shard, step.position());
  ASSERT_TRUE(harness_.SentPlan(0)->has_group_change());
  harness_.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness_, call).ok());
  EXPECT_EQ(harness_.phase(), "step 2: paused until kaonctl resume");
}

// The share was begun while the change was under way.
TEST(GroupChangeTest, AShareThatNoLongerFitsIsBegunAnew) {
  MachineHarness harness;
  harness.Train();
  harness.SetRate("1e10", 1);
  for (uint32_t rank : {0, 1}) {
    v1::BeginStepRequest begin = harness.BeginRequest(rank, 1);
    begin.set_learning_rate_multiplier(1e30);
    ASSERT_TRUE(harness.Begin(begin).ok());
  }
  const CallId await = harness.Await(0, 1);
  harness.VoteAndApply();
  EXPECT_FALSE(harness.SentPlan(0)) << "no shard would accept the step";
  ASSERT_TRUE(harness.ended(await));
  EXPECT_EQ(harness.ended(await)->code(), absl::StatusCode::kUnavailable);
  v1::BeginStepRequest begin = harness.BeginRequest(0, 1);
  begin.set_learning_rate_multiplier(1e30);
  EXPECT_EQ(harness.Begin(begin).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::coordinator
