#include "server/shard/monitor/shard_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::shard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StepPhases StepAt(uint64_t position, uint64_t apply_microseconds) {
  v1::StepPhases step;
  step.set_position(position);
  step.set_total_microseconds(2 * apply_microseconds);
  v1::Phase& phase = *step.add_phases();
  phase.set_name("apply");
  phase.set_busy_microseconds(apply_microseconds);
  phase.set_hidden_microseconds(apply_microseconds / 2);
  return step;
}

google::protobuf::RepeatedPtrField<v1::StepPhases> Steps(uint64_t first, uint64_t last) {
  google::protobuf::RepeatedPtrField<v1::StepPhases> steps;
  for (uint64_t position = first; position <= last; ++position) {
    *steps.Add() = StepAt(position, 1000000);
  }
  return steps;
}

std::string TextOf(const PhaseSums& sums) {
  metrics::MetricPage page;
  sums.Set(page);
  return page.Text();
}

TEST(PhaseSumsTest, AddsEveryFinishedStepOnce) {
  PhaseSums sums;
  sums.Add(Steps(1, 3));
  EXPECT_EQ(sums.next_position(), 3u);
  sums.Add(Steps(1, 4));
  EXPECT_EQ(sums.next_position(), 4u);
  const std::string text = TextOf(sums);
  EXPECT_THAT(text, HasSubstr("kaon_shard_step_seconds_count 3\nkaon_shard_step_seconds_sum 6\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_phase_seconds_total{phase=\"apply\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_phase_hidden_seconds_total{phase=\"apply\"} 1.5\n"));
}

TEST(ShardMetricsTest, TellsWhatKaonctlTells) {
  v1::DescribeShardResponse shard;
  shard.set_shard(2);
  shard.set_backend("cpu/onednn");
  shard.set_memory_tier("cpu");
  shard.set_applied_steps(7);
  shard.set_used_bytes(100);
  shard.mutable_state()->set_durability(v1::DURABILITY_MODE_JOURNAL);
  shard.mutable_journal()->set_read_only_reason("full");
  shard.add_parameters()->set_state_bytes(30);
  shard.add_parameters()->set_state_bytes(12);
  shard.mutable_snapshot()->set_problem("no room");
  v1::TierStatus& memory = *shard.add_tiers();
  memory.set_name("cpu");
  memory.set_used_bytes(100);
  v1::TierStatus& disk = *shard.add_tiers();
  disk.set_name("nvme");
  disk.set_path("/disk/file");
  disk.set_read_bytes(9);
  disk.set_waited_seconds(0.5);
  metrics::MetricPage page;
  SetShard(shard, page);
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("kaon_shard_info{shard=\"2\",backend=\"cpu/onednn\","
                              "durability=\"journal\",device_class=\"\",memory_tier=\"cpu\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_steps_total{outcome=\"applied\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_memory_used_bytes 100\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_state_bytes 42\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_read_only 1\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_snapshot_failed 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("kaon_shard_snapshot_step")));
  EXPECT_THAT(text, HasSubstr("kaon_shard_tier_used_bytes{tier=\"cpu\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_tier_read_bytes_total{tier=\"nvme\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("kaon_shard_tier_stall_seconds_total{tier=\"nvme\"} 0.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("read_bytes_total{tier=\"cpu\"}")));
}

TEST(ShardMetricsTest, TellsTheSpaceOfADisk) {
  const DiskSpace disk = ReadDisk(testing::TempDir());
  EXPECT_GT(disk.free, 0u);
  EXPECT_GT(disk.size, disk.free);
  metrics::MetricPage page;
  SetDisk(disk, page);
  EXPECT_THAT(page.Text(), HasSubstr("kaon_shard_disk_free_bytes "));
  metrics::MetricPage empty;
  SetDisk(ReadDisk("/nowhere"), empty);
  EXPECT_EQ(empty.Text(), "");
}

}  // namespace
}  // namespace kaon::shard
