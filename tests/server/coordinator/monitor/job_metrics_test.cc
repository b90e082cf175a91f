#include "server/coordinator/monitor/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CoordinatorSnapshot Training() {
  CoordinatorSnapshot snapshot;
  snapshot.holder = true;
  snapshot.job.emplace().mutable_definition()->set_world_size(4);
  snapshot.job->set_applied_step(12);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    WorkerSnapshot& worker = snapshot.workers.emplace_back();
    worker.rank = rank;
    worker.grad_norm = rank + 1.0;
  }
  snapshot.workers[0].begun_step = 13;
  snapshot.shard_problems = {"", "not connected"};
  return snapshot;
}

std::string TextOf(const CoordinatorSnapshot& snapshot) {
  metrics::MetricPage page;
  SetCoordinator(snapshot, 2, page);
  return page.Text();
}

TEST(JobMetricsTest, TellsOfShardsAndWorkers) {
  const std::string text = TextOf(Training());
  EXPECT_THAT(text, HasSubstr("kaon_coordinator_holder 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_running 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_coordinator_shard_up{shard=\"0\"} 1\n"
                              "kaon_coordinator_shard_up{shard=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_applied_step 12\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_workers_expected 4\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_workers_joined 3\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_workers_heard 2\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_workers_begun 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_worker_grad_norm_ratio 1.5\n"));
}

TEST(JobMetricsTest, TellsOfAStoppedJobAndAStandby) {
  CoordinatorSnapshot snapshot = Training();
  snapshot.job->set_stopped_reason("lost");
  EXPECT_THAT(TextOf(snapshot), HasSubstr("kaon_job_running 0\n"));
  EXPECT_THAT(TextOf(snapshot), HasSubstr("kaon_job_stopped 1\n"));
  snapshot.holder = false;
  EXPECT_THAT(TextOf(snapshot), HasSubstr("kaon_job_stopped 0\n"));
  EXPECT_THAT(TextOf(snapshot), Not(HasSubstr("kaon_coordinator_shard_up")));
}

TEST(JobMetricsTest, TellsOfTheNewestStepAndBoundsGroups) {
  v1::StepRecord record;
  v1::StepBody& step = *record.mutable_plan()->mutable_step();
  record.mutable_decision()->set_loss(2.5);
  for (int i = 0; i < 70; ++i) {
    v1::GroupNorm& group = *record.mutable_decision()->add_norms();
    group.set_group(absl::StrCat("g", i));
    group.set_norm(3);
    group.set_clip_factor(0.25);
    v1::GroupRate& rate = *step.add_rates();
    rate.set_group(absl::StrCat("g", i));
    rate.set_learning_rate(0.5);
  }
  JobNumbers numbers;
  numbers.applied = 3;
  numbers.newest = std::make_shared<const v1::StepRecord>(record);
  metrics::MetricPage page;
  SetDecided(numbers, true, page);
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("kaon_job_steps_total{outcome=\"applied\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_loss 2.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("kaon_job_grad_norm ")));
  EXPECT_THAT(text, HasSubstr("kaon_job_group_grad_norm{group=\"g63\"} 3\n"));
  EXPECT_THAT(text, Not(HasSubstr("g64")));
  EXPECT_THAT(text, HasSubstr("kaon_job_clip_factor{group=\"g0\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_learning_rate{group=\"g0\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("kaon_job_groups_omitted 6\n"));
  metrics::MetricPage standby;
  SetDecided(numbers, false, standby);
  EXPECT_THAT(standby.Text(), Not(HasSubstr("kaon_job_loss")));
}

}  // namespace
}  // namespace kaon::coordinator
