#include "server/coordinator/monitor/job_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

v1::StepRecord StepOf(uint64_t step, v1::Outcome outcome) {
  v1::StepRecord record;
  record.mutable_plan()->mutable_step()->set_step(step);
  record.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  record.mutable_decision()->set_outcome(outcome);
  return record;
}

TEST(JobMeterTest, CountsTrainStepsByOutcome) {
  JobMeter meter;
  EXPECT_EQ(meter.Read().newest, nullptr);
  v1::StepRecord load = StepOf(0, v1::OUTCOME_APPLY);
  load.mutable_plan()->mutable_step()->set_kind(v1::STEP_KIND_LOAD_WEIGHTS);
  meter.Note(load, 5, absl::UnixEpoch());
  EXPECT_EQ(meter.Read().newest, nullptr);
  EXPECT_EQ(meter.Read().decided_unix_millis, 5);
  meter.Note(StepOf(1, v1::OUTCOME_APPLY), 6, absl::UnixEpoch());
  meter.Note(StepOf(2, v1::OUTCOME_SKIP), 7, absl::UnixEpoch() + absl::Seconds(2));
  // Steps between were decided elsewhere.
  meter.Note(StepOf(9, v1::OUTCOME_APPLY), 8, absl::UnixEpoch() + absl::Seconds(9));
  const JobNumbers numbers = meter.Read();
  EXPECT_EQ(numbers.applied, 2u);
  EXPECT_EQ(numbers.skipped, 1u);
  EXPECT_EQ(numbers.newest->plan().step().step(), 9u);
  EXPECT_EQ(numbers.decided_unix_millis, 8);
  metrics::MetricPage page;
  page.Set("kaon_job_step_seconds", numbers.step_seconds);
  EXPECT_THAT(page.Text(),
              HasSubstr("kaon_job_step_seconds_count 1\nkaon_job_step_seconds_sum 2\n"));
}

}  // namespace
}  // namespace kaon::coordinator
