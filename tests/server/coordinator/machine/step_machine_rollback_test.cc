#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

// Of TestJob on two shards, in mode interval(4): at `step`, with the snapshots of steps 2 and 4.
v1::ShardState StateAt(uint64_t step, bool restarted) {
  v1::ShardState state = StateAfterStep(step);
  state.set_durability(v1::DURABILITY_MODE_INTERVAL);
  state.set_interval_steps(4);
  state.set_rollback_needed(restarted);
  for (const uint64_t of : {2, 4}) {
    v1::SnapshotPoint& point = *state.add_snapshots();
    point.set_position(of + 2);
    point.set_step(of);
    *point.mutable_registration() = state.registration();
    point.mutable_last_decision()->set_next_loss_scale(64);
    point.mutable_last_decision()->set_applied_updates(of);
  }
  return state;
}

TEST(RollbackTest, TheJobGoesOnFromTheNewestCommonStep) {
  MachineHarness harness;
  harness.Stand();
  harness.State(0, StateAt(5, false));
  harness.State(1, StateAt(4, true));
  EXPECT_THAT(harness.phase(), HasSubstr("rollback to step 4"));
  const std::optional<v1::StepPlan> plan = harness.SentPlan(1);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->position(), 8u);
  EXPECT_EQ(plan->timeline(), 2u);
  EXPECT_EQ(plan->rollback().reason(),
            "shard 1 restarted; step 5 is lost, the job goes on from step 4");
  // Workers are to come again.
  EXPECT_EQ(harness.Join(0, 100).status().code(), absl::StatusCode::kUnavailable);
  const v1::StepRecord record = harness.VoteAndApply();
  EXPECT_EQ(record.decision().outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(record.decision().applied_updates(), 4u);
  for (const uint32_t rank : {0, 1}) {
    const auto joined = harness.Join(rank, 100 + rank);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(joined->timeline(), 2u);
    EXPECT_EQ(joined->applied_step(), 4u);
    EXPECT_EQ(joined->loss_scale(), 64);
  }
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 5).ok());
  const v1::StepPlan next = *harness.SentPlan(0);
  EXPECT_EQ(next.position(), 9u);
  EXPECT_EQ(next.timeline(), 2u);
  EXPECT_EQ(next.config_revision(), 8u);
}

TEST(RollbackTest, AShardThatComesBackInTheMiddleOfAStepStartsOneAndWorkersAreTold) {
  MachineHarness harness;
  harness.Hold(StateAt(5, false));
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Join(rank, 100 + rank).ok());
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 6).ok());
  const CallId waiting = harness.Await(0, 6);
  harness.ClearSent();
  harness.machine().OnShardDisconnected(1);
  harness.machine().OnShardConnected(1);
  harness.Tick();
  ASSERT_TRUE(harness.SentPromise(0));
  harness.State(0, StateAt(5, false));
  harness.State(1, StateAt(4, true));
  ASSERT_TRUE(harness.SentPlan(0)->has_rollback());
  EXPECT_FALSE(harness.ended(waiting));
  harness.VoteAndApply();
  ASSERT_TRUE(harness.ended(waiting));
  EXPECT_EQ(harness.ended(waiting)->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(harness.ended(waiting)->message(),
            "timeline 1 is over: shard 1 restarted; step 5 is lost, the job goes on from step 4 in "
            "timeline 2");
  EXPECT_EQ(harness.Begin(0, 6).status().code(), absl::StatusCode::kAborted);
}

// Killed between the two PREPAREs: the next holder finds one of them, and plans its own.
TEST(RollbackTest, AHolderThatWasReplacedIsFollowedByOneThatPlansItsOwn) {
  MachineHarness first;
  first.Stand();
  first.State(0, StateAt(5, false));
  first.State(1, StateAt(4, true));
  const v1::StepPlan plan = *first.SentPlan(0);
  v1::ShardState held = StateAt(5, false);
  held.mutable_prepared()->set_plan(plan.SerializeAsString());
  MachineHarness next(2, "coordinator-b:1");
  next.Stand(first.ballot());
  next.State(0, held);
  next.State(1, StateAt(4, true));
  EXPECT_EQ(next.SentPlan(0)->position(), plan.position() + 1);
  EXPECT_EQ(next.SentPlan(0)->timeline(), plan.timeline() + 1);
  // Both hold it: it is decided, as it is.
  v1::ShardState other = StateAt(4, true);
  other.mutable_prepared()->set_plan(plan.SerializeAsString());
  MachineHarness third(2, "coordinator-c:1");
  third.Stand(next.ballot());
  third.State(0, held);
  third.State(1, other);
  const std::optional<v1::StepRecord> record = third.SentRecord(1);
  ASSERT_TRUE(record.has_value()) << third.phase();
  EXPECT_EQ(record->plan().SerializeAsString(), plan.SerializeAsString());
  for (const int shard : {0, 1}) third.Applied(shard, plan.position());
  EXPECT_THAT(third.phase(), HasSubstr("step 5"));
}

// One shard has applied it, with its snapshot, and restarted; the other only holds it.
TEST(RollbackTest, WhoIsBehindIsHelpedFirstAndThenAllAreReadAgain) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState done = StateAt(4, true);
  done.set_applied_position(8);
  v1::StepPlan& plan = *done.mutable_applied_record()->mutable_plan();
  plan = v1::StepPlan();
  plan.set_position(8);
  plan.set_timeline(2);
  *plan.mutable_rollback()->mutable_target() = done.snapshots(1);
  done.set_timeline(2);
  v1::ShardState behind = StateAt(5, false);
  behind.mutable_prepared()->set_plan(plan.SerializeAsString());
  harness.State(0, done);
  harness.State(1, behind);
  ASSERT_TRUE(harness.SentRecord(1).has_value()) << harness.phase();
  harness.ClearSent();
  const v1::Ballot before = harness.ballot();
  harness.Applied(1, 8);
  EXPECT_GT(harness.ballot().counter(), before.counter());
  v1::ShardState helped = done;
  helped.set_rollback_needed(false);
  harness.State(0, done);
  harness.State(1, helped);
  ASSERT_TRUE(harness.SentPlan(0)->has_rollback());
  EXPECT_EQ(harness.SentPlan(0)->position(), 9u);
  harness.VoteAndApply();
  EXPECT_THAT(harness.phase(), HasSubstr("step 5"));
}

TEST(RollbackTest, ADamagedSnapshotMakesItReadAllAgain) {
  MachineHarness harness;
  harness.Stand();
  harness.State(0, StateAt(5, false));
  harness.State(1, StateAt(4, true));
  harness.RefusePlan(0, "file f is torn", *harness.SentPlan(0));
  v1::ShardState damaged = StateAt(5, false);
  damaged.mutable_snapshots()->RemoveLast();
  harness.State(0, damaged);
  harness.State(1, StateAt(4, true));
  EXPECT_EQ(harness.SentPlan(1)->rollback().target().step(), 2u);
  // None is left: the job stops, and says why.
  harness.RefusePlan(0, "file g is torn", *harness.SentPlan(0));
  damaged.clear_snapshots();
  harness.State(0, damaged);
  harness.State(1, StateAt(4, true));
  EXPECT_THAT(harness.phase(), HasSubstr("shard 0 has none; shard 1 has step 2, 4"));
}

TEST(RollbackTest, AFirstSnapshotThatIsOnItsWayIsWaitedFor) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState restored = StateAt(5, false);
  restored.mutable_applied_record()->mutable_plan()->mutable_restore();
  v1::ShardState restarted = restored;
  restarted.set_rollback_needed(true);
  restarted.clear_snapshots();
  *restarted.add_snapshots() = restored.snapshots(1);
  restarted.mutable_snapshots(0)->set_position(7);
  restarted.mutable_snapshots(0)->set_step(5);
  restored.clear_snapshots();
  harness.State(0, restored);
  harness.State(1, restarted);
  EXPECT_THAT(harness.phase(), HasSubstr("reading the shards: waiting for shard 0"));
  harness.ClearSent();
  harness.Tick();
  EXPECT_TRUE(harness.SentPromise(0));
  EXPECT_FALSE(harness.SentPromise(1));
  *restored.add_snapshots() = restarted.snapshots(0);
  harness.State(0, restored);
  EXPECT_EQ(harness.SentPlan(0)->rollback().target().step(), 5u);
}

TEST(RollbackTest, AJobIsNotRegisteredOnShardsOfDifferentModes) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState interval;
  interval.set_durability(v1::DURABILITY_MODE_INTERVAL);
  interval.set_interval_steps(4);
  v1::ShardState journal;
  journal.set_durability(v1::DURABILITY_MODE_JOURNAL);
  harness.State(0, interval);
  harness.State(1, journal);
  const CallId call = 77;
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob();
  harness.machine().Register(call, request);
  harness.Tick();
  EXPECT_EQ(harness.registered(call).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(harness.registered(call).message(), HasSubstr("shard 1 has journal"));
}

}  // namespace
}  // namespace kaon::coordinator
