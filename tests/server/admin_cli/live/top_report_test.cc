#include "server/admin_cli/live/top_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStart = 1'000'000;

// Two shards, and steps 1 to `steps` with 100 ms between their decisions. Shard 0 works 30 of 40 ms
// on each; its newest step has not ended.
TopFacts Running(int steps) {
  TopFacts facts;
  facts.status.set_job("gpt2");
  facts.status.set_holder(true);
  facts.status.add_workers();
  facts.status.set_applied_step(steps);
  facts.status.set_time_unix_millis(kStart + 100 * steps);
  for (int i = 0; i < 2; ++i) {
    v1::ShardStatus& shard = *facts.status.add_shards();
    shard.set_shard(i);
    shard.set_connected(true);
    shard.mutable_description()->set_used_bytes(1 << 20);
    shard.mutable_description()->mutable_state()->set_applied_step(steps);
    facts.history.add_phases()->set_shard(i);
  }
  for (int step = 1; step <= steps; ++step) {
    facts.history.add_records()->mutable_plan()->set_position(step);
    (*facts.history.mutable_decided_unix_millis())[step] = kStart + 100 * step;
    v1::StepPhases& phases = *facts.history.mutable_phases(0)->add_steps();
    phases.set_total_microseconds(step == steps ? 7'000'000 : 40'000);
    phases.set_active_microseconds(30'000);
    v1::Phase& apply = *phases.add_phases();
    apply.set_name("apply");
    apply.set_busy_microseconds(90'000);
    apply.set_active_microseconds(20'000);
  }
  return facts;
}

TEST(TopReportTest, RateIsThatOfTheStepsWithATime) {
  TopFacts facts = Running(5);
  EXPECT_NEAR(StepsPerSecond(facts).value(), 10, 1e-9);
  facts.history.mutable_decided_unix_millis()->erase(1);
  EXPECT_NEAR(StepsPerSecond(facts).value(), 10, 1e-9);
}

TEST(TopReportTest, RateFallsWhileTheJobWaits) {
  TopFacts facts = Running(5);
  facts.status.set_time_unix_millis(facts.status.time_unix_millis() + 600);
  EXPECT_NEAR(StepsPerSecond(facts).value(), 5, 1e-9);
  EXPECT_NEAR(TopJson(facts)["seconds_since_step"].get<double>(), 0.6, 1e-9);
}

TEST(TopReportTest, RateIsUnknownWithoutTwoTimes) {
  TopFacts facts = Running(1);
  EXPECT_FALSE(StepsPerSecond(facts).has_value());
  EXPECT_TRUE(TopJson(facts)["steps_per_second"].is_null());
  EXPECT_THAT(TopText(facts), HasSubstr("step 1, - steps/s"));
}

TEST(TopReportTest, TimesAreMeansOfFinishedSteps) {
  const Json shard = TopJson(Running(5))["shards"][0];
  EXPECT_NEAR(shard["step_seconds"].get<double>(), 0.04, 1e-9);
  EXPECT_NEAR(shard["idle_seconds"].get<double>(), 0.01, 1e-9);
  EXPECT_NEAR(shard["phase_seconds"]["apply"].get<double>(), 0.02, 1e-9);
  EXPECT_THAT(TopText(Running(5)), HasSubstr("    0     5    40.00"));
}

TEST(TopReportTest, UnseenShardHasNoNumbers) {
  TopFacts facts = Running(5);
  EXPECT_TRUE(TopSeen(facts).ok()) << TopSeen(facts);
  v1::ShardStatus& away = *facts.status.mutable_shards(1);
  away.set_connected(false);
  away.set_problem("no route");
  away.clear_description();
  EXPECT_EQ(TopSeen(facts).code(), absl::StatusCode::kUnavailable);
  const Json row = TopJson(facts)["shards"][1];
  for (const char* key : {"applied_step", "used_bytes", "step_seconds", "phase_seconds"}) {
    EXPECT_TRUE(row[key].is_null()) << key;
  }
  EXPECT_THAT(TopText(facts), HasSubstr("no route"));
}

TEST(TopReportTest, UntoldPhasesFail) {
  TopFacts facts = Running(5);
  facts.history.mutable_phases(1)->set_problem("too slow");
  EXPECT_THAT(std::string(TopSeen(facts).message()), HasSubstr("shard 1: too slow"));
}

TEST(TopReportTest, TrafficThatAShardToldIsShown) {
  TopFacts facts = Running(5);
  facts.traffic[0] = {2.5e9, 0.0, uint64_t{3} << 20};
  EXPECT_THAT(TopText(facts), HasSubstr("2.500      0.000  1.0 MiB"));
  EXPECT_EQ(TopJson(facts)["shards"][0]["resident_bytes"], 3 << 20);
  EXPECT_TRUE(TopJson(facts)["shards"][1]["pushed_bytes_per_second"].is_null());
  facts.traffic_seen = absl::UnimplementedError("an old shard");
  EXPECT_EQ(TopSeen(facts), facts.traffic_seen);
}

TEST(TopReportTest, AStandbyDoesNotKnowTheWorkers) {
  TopFacts facts = Running(5);
  EXPECT_THAT(TopText(facts), HasSubstr(", 1 worker, "));
  facts.status.set_holder(false);
  EXPECT_TRUE(TopJson(facts)["workers"].is_null());
  EXPECT_THAT(TopText(facts), HasSubstr("unknown workers"));
}

}  // namespace
}  // namespace kaon::admin_cli
