#include "server/monitor/metrics/metric_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricPageTest, IsPrometheusText) {
  MetricPage page;
  page.Set("kaon_serving", 1);
  page.Set("kaon_shard_steps_total", 41, {"applied"});
  page.Set("kaon_shard_steps_total", 2, {"skipped"});
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("# HELP kaon_serving 1 if the health service says SERVING\n"
                              "# TYPE kaon_serving gauge\nkaon_serving 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE kaon_shard_steps_total counter\n"
                              "kaon_shard_steps_total{outcome=\"applied\"} 41\n"
                              "kaon_shard_steps_total{outcome=\"skipped\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("kaon_build_info")));
}

TEST(MetricPageTest, EscapesLabels) {
  MetricPage page;
  page.Set("kaon_job_clip_factor", 0.5, {"a\"b\\c\nd"});
  EXPECT_THAT(page.Text(), HasSubstr("{group=\"a\\\"b\\\\c\\nd\"} 0.5\n"));
}

TEST(MetricPageTest, CountsSecondsInBuckets) {
  SecondsHistogram seconds;
  seconds.Add(0.001);
  seconds.Add(0.0011);
  seconds.Add(1000);
  MetricPage page;
  page.Set("kaon_shard_step_seconds", seconds);
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_bucket{le=\"0.001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_bucket{le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_bucket{le=\"300\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_bucket{le=\"+Inf\"} 3\n"));
}

TEST(MetricPageDeathTest, KnowsItsMetrics) {
  MetricPage page;
  EXPECT_DEATH(page.Set("kaon_nothing", 1), "kaon_nothing is not in the list");
  EXPECT_DEATH(page.Set("kaon_serving", 1, {"x"}), "labels of kaon_serving");
}

}  // namespace
}  // namespace kaon::metrics
