#include "server/coordinator/machine/job_state.h"

#include <gtest/gtest.h>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

v1::StepRecord RecordAt(uint64_t position, uint64_t timeline) {
  v1::StepRecord record;
  record.mutable_plan()->set_position(position);
  record.mutable_plan()->set_timeline(timeline);
  record.mutable_decision()->set_outcome(v1::OUTCOME_APPLY);
  return record;
}

v1::StepRecord StepAt(uint64_t position, v1::StepKind kind, uint64_t step) {
  v1::StepRecord record = RecordAt(position, 1);
  record.mutable_plan()->mutable_step()->set_kind(kind);
  record.mutable_plan()->mutable_step()->set_step(step);
  return record;
}

TEST(JobStateTest, FollowsTheLogFromTheRegistrationToTheFirstStep) {
  JobState job;
  EXPECT_FALSE(job.NewestPlan().has_registration());
  EXPECT_EQ(job.WorldSize(), 0u);
  v1::StepRecord registration = RecordAt(1, 1);
  *registration.mutable_plan()->mutable_registration() = StateAfterStep(0).registration();
  job.Append(registration);
  EXPECT_EQ(job.WorldSize(), 2u);
  EXPECT_EQ(job.config_revision, 1u);
  EXPECT_EQ(job.NextStep(), 0u);
  // Initial weights that were refused are loaded again.
  v1::StepRecord skipped = StepAt(2, v1::STEP_KIND_LOAD_WEIGHTS, 0);
  skipped.mutable_decision()->set_outcome(v1::OUTCOME_SKIP);
  job.Append(skipped);
  EXPECT_EQ(job.NextStep(), 0u);
  job.Append(StepAt(3, v1::STEP_KIND_LOAD_WEIGHTS, 0));
  EXPECT_EQ(job.NextStep(), 1u);
  job.Append(StepAt(4, v1::STEP_KIND_TRAIN, 1));
  EXPECT_EQ(job.NextStep(), 2u);
  EXPECT_EQ(job.position, 4u);
  EXPECT_EQ(job.config_revision, 1u);
  const v1::JobDescription description = job.Describe();
  EXPECT_EQ(description.definition().name(), "tiny");
  EXPECT_EQ(description.applied_step(), 1u);
  EXPECT_TRUE(description.weights_loaded());
}

TEST(JobStateTest, NothingIsLeftAfterADeletionButTheNextTimeline) {
  JobState job;
  job.Read(StateAfterStep(9));
  v1::StepRecord deletion = RecordAt(12, 3);
  deletion.mutable_plan()->set_job("tiny");
  deletion.mutable_plan()->mutable_job_deletion();
  job.Append(deletion);
  EXPECT_EQ(job.DeletedJob(), "tiny");
  EXPECT_FALSE(job.registration.has_value());
  EXPECT_EQ(job.WorldSize(), 0u);
  EXPECT_EQ(job.NextStep(), 0u);
  EXPECT_EQ(job.applied_step, 0u);
  EXPECT_EQ(job.timeline, 4u);
  EXPECT_EQ(job.config_revision, 12u);
  // As another coordinator reads it.
  v1::ShardState state;
  state.set_applied_position(12);
  state.set_timeline(3);
  state.set_config_revision(12);
  *state.mutable_applied_record() = deletion;
  JobState read;
  read.Read(state);
  EXPECT_EQ(read.timeline, 4u);
  EXPECT_EQ(read.DeletedJob(), "tiny");
}

TEST(JobStateTest, GoesOnFromTheStepOfARestoreOrARollback) {
  JobState job;
  job.Read(StateAfterStep(9));
  v1::StepRecord restore = RecordAt(12, 3);
  restore.mutable_plan()->mutable_restore()->set_step(7);
  *restore.mutable_plan()->mutable_restore()->mutable_registration() = *job.registration;
  job.Append(restore);
  EXPECT_EQ(job.timeline, 3u);
  EXPECT_EQ(job.NextStep(), 8u);
  EXPECT_EQ(job.config_revision, 12u);
  v1::StepRecord rollback = RecordAt(14, 4);
  v1::SnapshotPoint& target = *rollback.mutable_plan()->mutable_rollback()->mutable_target();
  target.set_step(4);
  *target.mutable_registration() = *job.registration;
  job.Append(rollback);
  EXPECT_EQ(job.timeline, 4u);
  EXPECT_EQ(job.NextStep(), 5u);
  EXPECT_EQ(job.WorldSize(), 2u);
  EXPECT_EQ(job.position, 14u);
}

TEST(JobStateTest, ReadReplacesEverything) {
  JobState job;
  job.Read(StateAfterStep(9));
  EXPECT_EQ(job.NextStep(), 10u);
  EXPECT_TRUE(job.NewestPlan().has_step());
  job.Read(v1::ShardState());
  EXPECT_FALSE(job.record);
  EXPECT_FALSE(job.registration);
  EXPECT_EQ(job.timeline, 1u);
  EXPECT_EQ(job.NextStep(), 0u);
}

}  // namespace
}  // namespace kaon::coordinator
