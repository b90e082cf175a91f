#include "server/coordinator/machine/requests/restores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "server/coordinator/machine/registration.h"
#include "tests/server/coordinator/machine/machine_harness.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallId kCall = 7;

// Names a checkpoint of TestJob that one shard wrote at step 7 of timeline 4.
RestoreOrder OrderOfSeven(const std::string& job, uint64_t expected_step) {
  PlacementLimits limits;
  auto manifest = std::make_shared<v1::CheckpointManifest>();
  manifest->set_id("seven");
  manifest->set_job("tiny");
  manifest->set_timeline(4);
  manifest->set_position(9);
  manifest->set_step(7);
  *manifest->mutable_registration() = MakeRegistration(TestJob(), limits).value();
  manifest->mutable_last_record()->mutable_decision()->set_next_loss_scale(128);
  manifest->mutable_last_record()->mutable_decision()->set_applied_updates(6);
  RestoreOrder order;
  order.request.set_job(job);
  order.request.set_expected_step(expected_step);
  order.manifest = manifest;
  order.manifest_sha256 = "digest";
  return order;
}

PlacementLimits TwoShards() {
  PlacementLimits limits;
  limits.num_shards = 2;
  return limits;
}

// The job is at step 1 of timeline 1; no entry is under way.
class RestoresTest : public testing::Test {
 protected:
  RestoresTest() { job_.Read(StateAfterStep(1)); }

  absl::Status Check(const RestoreOrder& order) { return restores_.Check(order, job_, idle_); }

  const v1::StepPlan idle_;
  JobState job_;
  Restores restores_{TwoShards()};
};

TEST_F(RestoresTest, NamesWhatDoesNotFit) {
  EXPECT_THAT(Check(OrderOfSeven("tiny", 3)).message(),
              HasSubstr("expected_step is 3, the job is at step 1"));
  EXPECT_THAT(Check(OrderOfSeven("", 0)).message(), HasSubstr("the job that runs is \"tiny\""));
  RestoreOrder other = OrderOfSeven("tiny", 0);
  v1::CheckpointManifest manifest = *other.manifest;
  manifest.mutable_registration()->mutable_definition()->mutable_parameters(0)->set_shape(0, 9);
  other.manifest = std::make_shared<v1::CheckpointManifest>(manifest);
  EXPECT_THAT(Check(other).message(), HasSubstr("parameters[0].shape[0]: 8 -> 9"));
  job_ = JobState();
  EXPECT_THAT(Check(OrderOfSeven("tiny", 0)).message(), HasSubstr("no job runs"));
}

// The log was looked through before the checkpoint was read, which takes time.
TEST_F(RestoresTest, IsRefusedOnceTheJobIsInAnotherTimelineThanWhenTheLogWasRead) {
  RestoreOrder order = OrderOfSeven("tiny", 0);
  order.timeline = 1;
  EXPECT_TRUE(Check(order).ok());
  job_.timeline = 5;
  EXPECT_EQ(
      Check(order),
      absl::UnavailableError("the job was in timeline 1 when the checkpoint was read, it is in 5"));
}

TEST_F(RestoresTest, OneIsUnderWayAtATime) {
  const RestoreOrder order = OrderOfSeven("tiny", 0);
  v1::StepPlan open;
  open.mutable_restore();
  EXPECT_EQ(restores_.Check(order, job_, open).code(), absl::StatusCode::kAborted);
  restores_.Wait(kCall, order, /*planned=*/false);
  EXPECT_EQ(Check(order).code(), absl::StatusCode::kAborted);
  restores_.Cancel(kCall);
  EXPECT_TRUE(Check(order).ok());
}

TEST_F(RestoresTest, ARequestIdRepeatsWhatWaitsOrIsUnderWayOrIsDone) {
  RestoreOrder order = OrderOfSeven("tiny", 0);
  v1::StepPlan open;
  open.mutable_restore()->set_request_id(7);
  EXPECT_FALSE(restores_.Repeats(order, open));
  EXPECT_FALSE(restores_.Repeats(order, idle_));
  order.request.set_request_id(7);
  EXPECT_TRUE(restores_.Repeats(order, open));
  EXPECT_FALSE(restores_.IsDone(order, job_));
  v1::StepRecord record;
  *record.mutable_plan() = open;
  job_.record = DecidedRecord(record);
  EXPECT_TRUE(restores_.IsDone(order, job_));
  restores_.Wait(kCall, order, /*planned=*/false);
  EXPECT_TRUE(restores_.Repeats(order, idle_));
  EXPECT_FALSE(restores_.IsDone(order, job_));
}

TEST_F(RestoresTest, IsPlannedOnceAndAnsweredOnce) {
  restores_.Wait(kCall, OrderOfSeven("tiny", 0), /*planned=*/false);
  ASSERT_TRUE(restores_.WaitsForItsPlan());
  const absl::StatusOr<v1::StepPlan> plan = restores_.Plan(job_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->timeline(), 5u);
  EXPECT_EQ(plan->restore().step(), 7u);
  EXPECT_FALSE(restores_.WaitsForItsPlan());
  EXPECT_TRUE(restores_.waits());
  const Actions ended = restores_.End(absl::OkStatus(), job_);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(std::get<ReplyRestore>(ended[0]).call, kCall);
  EXPECT_EQ(std::get<ReplyRestore>(ended[0]).response->position(), job_.position);
  EXPECT_THAT(restores_.End(absl::OkStatus(), job_), IsEmpty());
}

absl::Status StatusOf(MachineHarness& harness, CallId call) {
  const auto answer = harness.restored(call);
  EXPECT_TRUE(answer.has_value()) << harness.phase();
  return answer ? answer->status() : absl::UnknownError("open");
}

TEST(StepMachineRestoreTest, StartsAJobWhereNoneRuns) {
  MachineHarness harness;
  harness.Hold();
  const CallId call = harness.Restore(OrderOfSeven("", 0));
  const v1::StepPlan plan = *harness.SentPlan(1);
  EXPECT_EQ(plan.position(), 1u);
  EXPECT_EQ(plan.timeline(), 5u);
  EXPECT_EQ(plan.restore().step(), 7u);
  EXPECT_EQ(plan.restore().manifest_sha256(), "digest");
  // Placed on the shards there are.
  EXPECT_EQ(plan.restore().registration().placement().num_shards(), 2u);
  EXPECT_FALSE(harness.restored(call));
  EXPECT_EQ(harness.Join(0, 100).status().code(), absl::StatusCode::kNotFound);
  const v1::StepRecord record = harness.VoteAndApply();
  EXPECT_EQ(record.decision().outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(record.decision().applied_updates(), 6u);
  const auto answer = harness.restored(call);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->timeline(), 5u);
  EXPECT_EQ((*answer)->position(), 1u);
  const auto joined = harness.Join(0, 100);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->timeline(), 5u);
  EXPECT_EQ(joined->applied_step(), 7u);
  EXPECT_TRUE(joined->weights_loaded());
  EXPECT_EQ(joined->loss_scale(), 128);
}

TEST(StepMachineRestoreTest, FollowsTheLossOfAShardsState) {
  MachineHarness harness;
  harness.Stand();
  harness.State(0, StateAfterStep(2));
  harness.State(1, {});
  EXPECT_THAT(harness.phase(),
              HasSubstr("; to go on from the newest checkpoint, run: kaonctl checkpoint restore"));
  const CallId call = harness.Restore(OrderOfSeven("tiny", 2));
  const v1::StepPlan plan = *harness.SentPlan(1);
  EXPECT_EQ(plan.position(), StateAfterStep(2).applied_position() + 1);
  EXPECT_EQ(plan.timeline(), 5u);
  harness.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness, call).ok());
  EXPECT_TRUE(harness.machine().stopped().ok()) << harness.phase();
}

TEST(StepMachineRestoreTest, IsRefusedWhileAShardWithADamagedDirectoryIsThere) {
  MachineHarness harness;
  harness.Stand();
  harness.State(0, StateAfterStep(2));
  v1::ShardState damaged;
  damaged.set_data_loss("its journal is damaged");
  harness.State(1, damaged);
  EXPECT_THAT(StatusOf(harness, harness.Restore(OrderOfSeven("tiny", 2))).message(),
              HasSubstr("shard 1: its journal is damaged"));
}

// Workers belong to the job as it is registered now, not to the checkpoint.
TEST(StepMachineRestoreTest, TheFirstToRegisterSaysHowManyWorkersARestoredJobHas) {
  MachineHarness harness;
  harness.Hold();
  harness.Restore(OrderOfSeven("", 0));
  harness.VoteAndApply();
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob(4);
  request.mutable_definition()->set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  const CallId call = 900;
  harness.machine().Register(call, request);
  harness.Tick();
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change()) << harness.phase();
  harness.VoteAndApply();
  EXPECT_TRUE(harness.registered(call).ok()) << harness.registered(call);
  const v1::JobDescription job = *harness.machine().Snapshot().job;
  EXPECT_EQ(job.definition().world_size(), 4u);
  EXPECT_EQ(job.definition().worker_loss(), v1::WORKER_LOSS_POLICY_SHRINK);
  EXPECT_TRUE(harness.Register(request.definition()).ok());
  EXPECT_TRUE(harness.Join(3, 100).ok());
  // The job is theirs.
  EXPECT_EQ(harness.Register(TestJob(3)).status().code(), absl::StatusCode::kAlreadyExists);
}

// Registered with 2, changed to 5, then written and restored: 2 is not what the job has.
TEST(StepMachineRestoreTest, ARestoredJobIsNotTheOneThatWasOnceAskedFor) {
  RestoreOrder order = OrderOfSeven("", 0);
  auto manifest = std::make_shared<v1::CheckpointManifest>(*order.manifest);
  manifest->mutable_registration()->mutable_definition()->set_world_size(5);
  // It was the old job that an admin paused.
  manifest->mutable_registration()->mutable_definition()->set_paused(true);
  manifest->mutable_registration()->add_changed()->set_field("world_size");
  order.manifest = manifest;
  MachineHarness harness;
  harness.Hold();
  harness.Restore(order);
  harness.VoteAndApply();
  EXPECT_FALSE(harness.machine().Snapshot().job->definition().paused());
  v1::RegisterJobRequest request;
  *request.mutable_definition() = TestJob(2);
  harness.machine().Register(900, request);
  harness.Tick();
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change()) << harness.phase();
  harness.VoteAndApply();
  EXPECT_EQ(harness.machine().Snapshot().job->definition().world_size(), 2u);
}

TEST(StepMachineRestoreTest, AJobThatRunsKeepsItsWorkers) {
  MachineHarness harness;
  harness.Train(4);
  const CallId call = harness.Restore(OrderOfSeven("tiny", 0));
  EXPECT_EQ(harness.SentPlan(0)->restore().registration().definition().world_size(), 4u);
  harness.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness, call).ok());
  EXPECT_TRUE(harness.Register(TestJob(4)).ok());
  EXPECT_TRUE(harness.Join(3, 103).ok());
}

TEST(StepMachineRestoreTest, TakesThePlaceOfAStepThatIsNotDecided) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId waiting = harness.Await(0, 1);
  const v1::StepPlan step = *harness.SentPlan(0);
  harness.Vote(0, step);
  const CallId call = harness.Restore(OrderOfSeven("tiny", 0));
  const v1::StepPlan plan = *harness.SentPlan(0);
  ASSERT_TRUE(plan.has_restore());
  EXPECT_EQ(plan.position(), step.position());
  EXPECT_EQ(plan.round(), step.round() + 1);
  // The vote for the step that comes late counts for nothing.
  harness.Vote(1, step);
  EXPECT_FALSE(harness.SentRecord(0));
  harness.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness, call).ok());
  // What was begun in the old timeline is over, and must join again to go on.
  const std::optional<absl::Status> ended = harness.ended(waiting);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code(), absl::StatusCode::kAborted);
  EXPECT_THAT(ended->message(), HasSubstr("timeline 1 is over"));
  EXPECT_EQ(harness.Begin(0, 8).status().code(), absl::StatusCode::kAborted);
  for (uint32_t rank : {0, 1}) {
    v1::JoinWorkerRequest join;
    join.set_job("tiny");
    join.set_rank(rank);
    join.set_process_nonce(100 + rank);
    *join.mutable_previous_attempt() = step.step().members(static_cast<int>(rank)).attempt();
    ASSERT_EQ(harness.Join(join)->timeline(), 5u);
    ASSERT_TRUE(harness.Begin(rank, 8).ok());
  }
  const v1::StepPlan next = *harness.SentPlan(0);
  EXPECT_EQ(next.step().step(), 8u);
  EXPECT_EQ(next.timeline(), 5u);
  EXPECT_EQ(next.config_revision(), plan.position());
  EXPECT_EQ(next.step().loss_scale(), 128);
}

// Nothing but what waits would ever open the next round of a job at rest.
TEST(StepMachineRestoreTest, IsPlannedWhenTheChangeItWaitsForIsRefused) {
  MachineHarness harness;
  harness.Train();
  const CallId change = harness.SetRate("0.5", 1);
  const v1::StepPlan refused = *harness.SentPlan(0);
  ASSERT_TRUE(refused.has_group_change());
  const CallId call = harness.Restore(OrderOfSeven("tiny", 0));
  ASSERT_TRUE(harness.SentPlan(0)->has_group_change());
  harness.RefusePlan(0, "no such option", refused);
  EXPECT_EQ(harness.set(change)->status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(harness.SentPlan(0)->has_restore());
  harness.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness, call).ok());
}

TEST(StepMachineRestoreTest, WaitsForADecisionToBeApplied) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const v1::StepPlan step = *harness.SentPlan(0);
  for (int shard : {0, 1}) harness.Vote(shard, step);
  // Decided: the job is at step 1 now.
  EXPECT_EQ(StatusOf(harness, harness.Restore(OrderOfSeven("tiny", 2))).code(),
            absl::StatusCode::kFailedPrecondition);
  const CallId call = harness.Restore(OrderOfSeven("tiny", 0));
  EXPECT_TRUE(harness.SentRecord(0));
  EXPECT_FALSE(harness.SentPlan(0)->has_restore());
  for (int shard : {0, 1}) harness.Applied(shard, step.position());
  EXPECT_TRUE(harness.SentPlan(0)->has_restore());
  harness.VoteAndApply();
  EXPECT_TRUE(StatusOf(harness, call).ok());
}

TEST(StepMachineRestoreTest, AShardThatCannotReadItsPartEndsItAndNothingChanges) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const CallId call = harness.Restore(OrderOfSeven("tiny", 0));
  harness.RefusePlan(1, "file x has CRC 1, expecting 2", *harness.SentPlan(1));
  EXPECT_EQ(StatusOf(harness, call).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(StatusOf(harness, call).message(), HasSubstr("shard 1: file x has CRC 1"));
  // The step that it had taken the place of is open again.
  ASSERT_TRUE(harness.SentPlan(0)->has_step());
  EXPECT_EQ(harness.VoteAndApply().plan().timeline(), 1u);
}

TEST(StepMachineRestoreTest, OneIsUnderWayAtATime) {
  MachineHarness harness;
  harness.Train();
  const CallId first = harness.Restore(OrderOfSeven("tiny", 0));
  EXPECT_EQ(StatusOf(harness, harness.Restore(OrderOfSeven("tiny", 0))).code(),
            absl::StatusCode::kAborted);
  harness.machine().CancelCall(first);
  EXPECT_EQ(StatusOf(harness, harness.Restore(OrderOfSeven("tiny", 0))).code(),
            absl::StatusCode::kAborted);
  harness.VoteAndApply();
  EXPECT_FALSE(harness.restored(first));
  EXPECT_TRUE(harness.Join(0, 100).ok());
}

TEST(StepMachineRestoreTest, ARepetitionWaitsForTheEntryOfItsRequest) {
  MachineHarness harness;
  harness.Train();
  RestoreOrder order = OrderOfSeven("tiny", 0);
  order.request.set_request_id(7);
  const CallId first = harness.Restore(order);
  const CallId second = harness.Restore(order);
  EXPECT_EQ(StatusOf(harness, first).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(harness.SentPlan(0)->restore().request_id(), 7u);
  harness.machine().CancelCall(second);
  const CallId third = harness.Restore(order);
  EXPECT_EQ(StatusOf(harness, harness.Restore(OrderOfSeven("tiny", 0))).code(),
            absl::StatusCode::kAborted);
  const v1::StepPlan plan = *harness.SentPlan(0);
  for (int shard : {0, 1}) harness.Vote(shard, plan);
  const CallId fourth = harness.Restore(order);
  EXPECT_EQ(StatusOf(harness, third).code(), absl::StatusCode::kUnavailable);
  harness.ClearSent();
  for (int shard : {0, 1}) harness.Applied(shard, plan.position());
  EXPECT_TRUE(StatusOf(harness, fourth).ok());
  EXPECT_FALSE(harness.SentPlan(0));
  // Nor is it done again where the log was looked through before the entry was in it.
  const CallId fifth = harness.Restore(order);
  EXPECT_TRUE(StatusOf(harness, fifth).ok());
  EXPECT_EQ((*harness.restored(fifth))->position(), plan.position());
  EXPECT_FALSE(harness.SentPlan(0));
}

// A checkpoint that is being written may be finished at any moment of a restore, and then remove
// others.
TEST(StepMachineRestoreTest, WhatTheStateIsTakenFromIsInUse) {
  MachineHarness harness;
  harness.Train();
  const auto in_use = [&harness] {
    harness.Create("mine");
    for (int shard : {0, 1}) {
      v1::ShardToCoordinator message;
      message.mutable_checkpoint()->set_id("mine");
      message.mutable_checkpoint()->set_attempt(harness.attempt());
      message.mutable_checkpoint()->mutable_part()->set_shard(shard);
      harness.FromShard(shard, message);
    }
    harness.CheckpointFinished(v1::CheckpointSummary());
    return harness.finished().back().in_use;
  };
  EXPECT_TRUE(in_use().empty());
  harness.Restore(OrderOfSeven("tiny", 0));
  ASSERT_EQ(in_use().size(), 1u);
  EXPECT_EQ(in_use()[0].id, "seven");
  harness.VoteAndApply();
  ASSERT_EQ(in_use().size(), 1u);
  EXPECT_EQ(in_use()[0].id, "seven");
  EXPECT_EQ(in_use()[0].timeline, 5u);
}

// Rule 3: "if all are alike it must decide": a restore whose coordinator died is finished by the
// next one.
TEST(StepMachineRestoreTest, IsFinishedByTheNextHolder) {
  MachineHarness harness;
  harness.Train();
  harness.Restore(OrderOfSeven("tiny", 0));
  const v1::StepPlan plan = *harness.SentPlan(0);
  MachineHarness next(2, "coordinator-b:1");
  next.Stand(plan.ballot());
  for (int shard : {0, 1}) {
    v1::ShardState state = StateAfterStep(0);
    *state.mutable_prepared() = harness.VoteFor(plan, shard);
    next.State(shard, state);
  }
  const v1::StepRecord record = *next.SentRecord(0);
  EXPECT_TRUE(record.plan().has_restore());
  EXPECT_EQ(record.decision().next_loss_scale(), 128);
  for (int shard : {0, 1}) next.Applied(shard, record.plan().position());
  EXPECT_EQ(next.Join(0, 100)->timeline(), 5u);
}

}  // namespace
}  // namespace kaon::coordinator
