// The deletion of a job, planned, decided and completed by coordinators (ADR 0048).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "proto/decide_version.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

const absl::Status kDeleted = absl::NotFoundError("job \"tiny\" was deleted");

// Returns the state of a shard that has applied the deletion after step 1.
v1::ShardState StateAfterDeletion() {
  const v1::ShardState before = StateAfterStep(1);
  v1::ShardState state;
  state.set_applied_position(before.applied_position() + 1);
  state.set_timeline(1);
  state.set_config_revision(state.applied_position());
  v1::StepPlan& plan = *state.mutable_applied_record()->mutable_plan();
  plan.set_job("tiny");
  plan.set_timeline(1);
  plan.set_position(state.applied_position());
  plan.set_decide_version(proto::kDecideVersion);
  plan.mutable_job_deletion()->set_request_id(7);
  state.mutable_applied_record()->mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  state.mutable_applied_record()->mutable_decision()->set_next_loss_scale(1);
  return state;
}

TEST(DeletionTest, AnswersOnceEveryShardHasAppliedIt) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.Delete("tiny");
  const std::optional<v1::StepPlan> plan = harness.SentPlan(1);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->job(), "tiny");
  EXPECT_EQ(plan->position(), 3u);
  EXPECT_EQ(plan->timeline(), 1u);
  EXPECT_FALSE(harness.deleted(call));
  for (int shard : {0, 1}) harness.Vote(shard, *plan);
  EXPECT_FALSE(harness.deleted(call));
  // Between decision and end no job may begin, and the old one is over.
  EXPECT_THAT(harness.phase(), HasSubstr("applying deletion of job tiny"));
  EXPECT_EQ(harness.Join(0, 100).status(), kDeleted);
  harness.Applied(0, 3);
  EXPECT_FALSE(harness.deleted(call));
  harness.Applied(1, 3);
  ASSERT_TRUE(harness.deleted(call).has_value());
  ASSERT_TRUE(harness.deleted(call)->ok()) << harness.deleted(call)->status();
  EXPECT_EQ((*harness.deleted(call))->position(), 3u);
  EXPECT_THAT(harness.phase(), HasSubstr("no job is registered"));
  EXPECT_EQ(harness.GetJob().status(), kDeleted);
  EXPECT_EQ(harness.machine().Snapshot().config_revision, 3u);
}

TEST(DeletionTest, DoesNotWaitForTheOpenStepAndEndsItsStreams) {
  MachineHarness harness;
  harness.Train();
  for (const uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId waiting = harness.Await(0, 1);
  ASSERT_TRUE(harness.SentPlan(0)->has_step());
  const CallId call = harness.Delete("tiny");
  ASSERT_TRUE(harness.SentPlan(0)->has_job_deletion());
  EXPECT_EQ(harness.SentPlan(0)->round(), 2u);
  EXPECT_FALSE(harness.ended(waiting));
  harness.VoteAndApply();
  EXPECT_EQ(harness.ended(waiting), kDeleted);
  EXPECT_TRUE(harness.deleted(call)->ok());
  EXPECT_EQ(harness.Begin(1, 1).status(), kDeleted);
}

TEST(DeletionTest, AnotherJobBeginsTheNextTimeline) {
  MachineHarness harness;
  harness.Train();
  harness.Delete("tiny");
  harness.VoteAndApply();
  v1::JobDefinition other = TestJob(1);
  other.set_name("other");
  other.mutable_parameters(0)->set_shape(0, 16);
  const absl::StatusOr<v1::JobDescription> job = harness.Register(other);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->timeline(), 2u);
  EXPECT_EQ(job->config_revision(), 4u);
  EXPECT_EQ(job->applied_step(), 0u);
  EXPECT_FALSE(job->weights_loaded());
  v1::JoinWorkerRequest join;
  join.set_job("tiny");
  join.set_process_nonce(5);
  EXPECT_THAT(harness.Join(join).status().message(), HasSubstr("the job here is \"other\""));
  join.set_job("other");
  EXPECT_EQ(harness.Join(join)->timeline(), 2u);
}

TEST(DeletionTest, WorkersOfTheDeletedJobDoNotJoinOneOfTheSameName) {
  MachineHarness harness;
  harness.Train();
  harness.Delete("tiny");
  harness.VoteAndApply();
  ASSERT_TRUE(harness.Register(TestJob()).ok());
  v1::JoinWorkerRequest join;
  join.set_job("tiny");
  join.set_process_nonce(100);
  join.set_timeline(1);
  EXPECT_EQ(harness.Join(join).status(), kDeleted);
  join.set_timeline(2);
  EXPECT_TRUE(harness.Join(join).ok());
}

TEST(DeletionTest, NamesWhatDoesNotFit) {
  MachineHarness harness;
  harness.Hold();
  v1::DeleteJobRequest request;
  EXPECT_THAT(harness.deleted(harness.Delete(request))->status().message(),
              HasSubstr("job is empty"));
  request.set_job("tiny");
  EXPECT_EQ(harness.deleted(harness.Delete(request))->status().code(), absl::StatusCode::kNotFound);
  MachineHarness trained;
  trained.Train();
  EXPECT_THAT(trained.deleted(trained.Delete(request))->status().message(),
              HasSubstr("timeline is 0, must be that of the job, 1"));
  request.set_timeline(2);
  EXPECT_EQ(trained.deleted(trained.Delete(request))->status().code(),
            absl::StatusCode::kFailedPrecondition);
  request.set_job("other");
  EXPECT_EQ(trained.deleted(trained.Delete(request))->status().code(), absl::StatusCode::kNotFound);
  // A shard of an older version does not know the entry.
  const CallId call = trained.Delete("tiny");
  trained.RefusePlan(1, "plan has neither a step nor a control change", *trained.SentPlan(1));
  EXPECT_EQ(trained.deleted(call)->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(trained.GetJob().ok());
}

TEST(DeletionTest, ARepeatedRequestGetsTheSameDeletion) {
  MachineHarness harness;
  harness.Train();
  const CallId first = harness.Delete("tiny", 7);
  const CallId again = harness.Delete("tiny", 7);
  EXPECT_EQ(harness.deleted(first)->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness.deleted(harness.Delete("tiny", 8))->status().code(),
            absl::StatusCode::kAborted);
  harness.VoteAndApply();
  EXPECT_EQ((*harness.deleted(again))->position(), 3u);
  EXPECT_EQ((*harness.deleted(harness.Delete("tiny", 7)))->position(), 3u);
  EXPECT_EQ(harness.deleted(harness.Delete("tiny", 8))->status(), kDeleted);
}

TEST(DeletionTest, AJobThatStoppedForAWorkerCanBeDeleted) {
  MachineHarness harness;
  v1::JobDefinition job = TestJob();
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_FAIL);
  job.set_worker_loss_seconds(1);
  harness.Train(job);
  ASSERT_TRUE(harness.Begin(0, 1).ok());
  harness.Await(0, 1);
  for (int i = 0; i < 30; ++i) {
    harness.Tick();
    for (int shard : {0, 1}) harness.FromShard(shard, v1::ShardToCoordinator());
  }
  ASSERT_FALSE(harness.machine().stopped().ok());
  const CallId call = harness.Delete("tiny");
  harness.VoteAndApply();
  EXPECT_TRUE(harness.deleted(call)->ok());
  EXPECT_TRUE(harness.machine().stopped().ok());
}

// A dead coordinator had reached one shard of two.
TEST(DeletionTest, ANewHolderCompletesOneThatSomeShardHasApplied) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState behind = StateAfterStep(1);
  const v1::ShardState applied = StateAfterDeletion();
  behind.mutable_prepared()->set_plan(applied.applied_record().plan().SerializeAsString());
  harness.State(0, applied);
  harness.State(1, behind);
  ASSERT_TRUE(harness.SentRecord(1).has_value());
  EXPECT_TRUE(harness.SentRecord(1)->plan().has_job_deletion());
  harness.Applied(1, applied.applied_position());
  EXPECT_THAT(harness.phase(), HasSubstr("no job is registered"));
  EXPECT_EQ(harness.Join(0, 100).status(), kDeleted);
  ASSERT_TRUE(harness.Register(TestJob()).ok());
  EXPECT_EQ(harness.GetJob()->timeline(), 2u);
}

TEST(DeletionTest, ANewHolderDecidesOneThatEveryShardVotedFor) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState state = StateAfterStep(1);
  const v1::StepPlan plan = StateAfterDeletion().applied_record().plan();
  state.mutable_prepared()->set_plan(plan.SerializeAsString());
  for (int shard : {0, 1}) harness.State(shard, state);
  ASSERT_TRUE(harness.SentRecord(0).has_value()) << harness.phase();
  EXPECT_TRUE(harness.SentRecord(0)->plan().has_job_deletion());
  // Nothing of the deleted job goes into the decisions of the next one.
  EXPECT_EQ(harness.SentRecord(0)->decision().applied_updates(), 0u);
  EXPECT_EQ(harness.SentRecord(0)->decision().next_loss_scale(), 1);
}

TEST(DeletionTest, ANewHolderForgetsOneThatNotEveryShardVotedFor) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState voted = StateAfterStep(1);
  voted.mutable_prepared()->set_plan(
      StateAfterDeletion().applied_record().plan().SerializeAsString());
  harness.State(0, voted);
  harness.State(1, StateAfterStep(1));
  EXPECT_TRUE(harness.GetJob().ok());
  EXPECT_FALSE(harness.SentRecord(0).has_value());
}

// In mode interval a shard may have forgotten its votes for steps, but not that for the deletion.
TEST(DeletionTest, ARestartedIntervalShardTakesPartInIt) {
  MachineHarness harness;
  harness.Stand();
  v1::ShardState restarted = StateAfterStep(0);
  restarted.set_durability(v1::DURABILITY_MODE_INTERVAL);
  restarted.set_interval_steps(4);
  restarted.set_rollback_needed(true);
  v1::ShardState applied = StateAfterDeletion();
  applied.set_durability(v1::DURABILITY_MODE_INTERVAL);
  applied.set_interval_steps(4);
  restarted.mutable_prepared()->set_plan(applied.applied_record().plan().SerializeAsString());
  harness.State(0, applied);
  harness.State(1, restarted);
  ASSERT_TRUE(harness.SentRecord(1).has_value()) << harness.phase();
  harness.Applied(1, applied.applied_position());
  EXPECT_THAT(harness.phase(), HasSubstr("no job is registered"));
}

}  // namespace
}  // namespace kaon::coordinator
