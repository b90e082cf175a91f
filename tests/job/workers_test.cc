#include "job/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace kaon::job {
namespace {

using ::testing::HasSubstr;

std::string Refusal(v1::JobDefinition job) {
  job.set_world_size(2);
  CompleteWorkers(job);
  return ValidateWorkers(job).ToString();
}

TEST(WorkersTest, RefusesAStepDeadlineOutOfRangeOrWithoutUse) {
  v1::JobDefinition job;
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  for (const double seconds : {0.5, 86401.0, std::numeric_limits<double>::quiet_NaN()}) {
    job.set_step_seconds(seconds);
    EXPECT_THAT(Refusal(job), HasSubstr("step_seconds is"));
    EXPECT_THAT(Refusal(job), HasSubstr("must be 1 .. 86400"));
  }
  job.set_step_seconds(60);
  job.set_paused(true);
  EXPECT_EQ(Refusal(job), "OK");
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_WAIT);
  EXPECT_THAT(Refusal(job), HasSubstr("step_seconds is 60, must be unset"));
}

TEST(WorkersTest, ADefinitionHasNoDeadlineUnlessItNamesOne) {
  v1::JobDefinition job;
  job.set_worker_loss(v1::WORKER_LOSS_POLICY_FAIL);
  CompleteWorkers(job);
  EXPECT_TRUE(job.has_worker_loss_seconds());
  EXPECT_FALSE(job.has_step_seconds());
}

}  // namespace
}  // namespace kaon::job
