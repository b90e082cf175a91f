#include "server/preflight/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/job_parts.h"
#include "tests/integration/trained_job.h"

namespace kaon::preflight {
namespace {

using testing::AddGroup;
using testing::AddParameter;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// 60,000 elements of Muon, 3,000 of AdamW and 500 frozen.
v1::JobDefinition Job() {
  v1::JobDefinition job;
  job.set_name("planned");
  job.set_world_size(2);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  AddGroup(job, "muon", v1::RULE_MUON, 0.02);
  AddGroup(job, "adamw", v1::RULE_ADAMW, 0.01);
  AddParameter(job, "a.weight", {100, 400});
  AddParameter(job, "b.weight", {200, 100});
  AddParameter(job, "b.bias", {3000});
  AddParameter(job, "table", {500}).set_frozen(true);
  return job;
}

v1::ShardConfig Shard() {
  v1::ShardConfig shard;
  shard.set_host_memory_bytes(512 * kMiB);
  shard.set_threads(2);
  return shard;
}

Report ReportOn(const v1::ShardConfig& shard, uint32_t count = 2) {
  return preflight::Run(Job(), OffersOf(shard, count).value()).value();
}

TEST(PreflightTest, GroupsAndTheirSumHaveTheBytesOfEachRule) {
  const Report report = ReportOn(Shard());
  ASSERT_EQ(report.groups.size(), 3u);
  const GroupNeeds& muon = report.groups[0];
  EXPECT_EQ(muon.elements, 60000u);
  EXPECT_EQ(muon.state_bytes, 60000u * 4);
  EXPECT_EQ(report.groups[1].state_bytes, 3000u * 8);
  const GroupNeeds& frozen = report.groups[2];
  EXPECT_EQ(frozen.group, "(frozen)");
  EXPECT_EQ(frozen.next_weight_bytes, 0u);
  EXPECT_EQ(frozen.state_bytes, 0u);
  EXPECT_EQ(report.total.weight_bytes, 63500u * 4);
  EXPECT_EQ(report.push_bytes, 63000u * 4);
  EXPECT_EQ(report.pull_bytes, 63500u * 4);
  EXPECT_EQ(report.largest_matrix.parameter, "a.weight");
  EXPECT_EQ(report.largest_matrix.rows, 100u);
}

// The numbers are those of a cluster that has the job.
TEST(PreflightTest, EveryShardUsesWhatWasSaidBefore) {
  testing::TrainingPlan plan;
  plan.job = Job();
  plan.gradient = [job = plan.job](uint32_t id, uint32_t rank, uint64_t step) {
    return testing::DrawTensor(job, id, 100 * step + rank);
  };
  const testing::TrainedJob trained = TrainOnShards(plan, 2);
  std::vector<ShardOffer> offers = OffersOf(trained.status).value();
  for (ShardOffer& offer : offers) {
    EXPECT_EQ(offer.backend, "cpu");
    EXPECT_EQ(offer.durability, "journal");
    // These shards have no sessions over shared memory.
    offer.memory.reserved_bytes = 32 * kMiB;
  }
  const Report report = preflight::Run(plan.job, offers).value();
  EXPECT_TRUE(JobFits(report).ok()) << JobFits(report);
  for (int i = 0; i < 2; ++i) {
    const v1::DescribeShardResponse& facts = trained.status.shards(i).description();
    const ShardVerdict& verdict = report.shards[i];
    EXPECT_EQ(verdict.needs.used_bytes(), facts.used_bytes()) << "shard " << i;
    EXPECT_GT(verdict.needs.workspace_bytes, 0u);
    EXPECT_LE(facts.journal().bytes(), verdict.disk_bytes);
    // One byte less is refused.
    offers[i].memory.capacity_bytes = facts.used_bytes();
    EXPECT_TRUE(JobFits(preflight::Run(plan.job, offers).value()).ok());
    offers[i].memory.capacity_bytes = facts.used_bytes() - 1;
    EXPECT_FALSE(JobFits(preflight::Run(plan.job, offers).value()).ok());
    offers[i].memory.capacity_bytes = facts.capacity_bytes();
  }
}

TEST(PreflightTest, AJobThatDoesNotFitGetsTheArithmeticAndAllNumbers) {
  v1::ShardConfig shard = Shard();
  shard.set_host_memory_bytes(65 * kMiB);
  v1::JobDefinition job = Job();
  AddParameter(job, "c.weight", {3000, 3000});
  const Report report = preflight::Run(job, OffersOf(shard, 2).value()).value();
  const absl::Status fits = JobFits(report);
  EXPECT_EQ(fits.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(fits.message(), HasSubstr("job planned does not fit: shard 0: parameter c.weight"));
  EXPECT_THAT(fits.message(), HasSubstr("raise --host-memory-bytes or add shards"));
  EXPECT_GT(report.shards[0].needs.used_bytes(), 65 * kMiB);
  EXPECT_FALSE(report.shards[0].refusal.ok());
  EXPECT_TRUE(report.shards[1].refusal.ok());
}

TEST(PreflightTest, WorkersNeedStaging) {
  v1::ShardConfig shard = Shard();
  shard.set_staging_bytes(kMiB);
  EXPECT_THAT(JobFits(ReportOn(shard)).message(), HasSubstr("staging_bytes: 1048576 / 2 workers"));
}

TEST(PreflightTest, DiskIsThatOfTheMode) {
  v1::ShardConfig shard = Shard();
  const uint64_t state = 60000 * 8 + 3000 * 12 + 500 * 4;
  EXPECT_EQ(ReportOn(shard, 1).shards[0].disk_bytes, 3 * state + 2 * 256 * kMiB);
  shard.set_durability("interval(8)");
  EXPECT_EQ(ReportOn(shard, 1).shards[0].disk_bytes, 3 * state);
  shard.set_durability("none");
  EXPECT_EQ(ReportOn(shard, 1).shards[0].disk_bytes, 0u);
}

TEST(PreflightTest, RefusesValuesAsAShardWould) {
  v1::ShardConfig shard = Shard();
  shard.set_host_memory_bytes(kMiB);
  EXPECT_THAT(OffersOf(shard, 1).status().message(), HasSubstr("host_memory_bytes is 1048576"));
  v1::GetStatusResponse cluster;
  cluster.add_shards()->set_problem("not connected");
  EXPECT_EQ(OffersOf(cluster).status().code(), absl::StatusCode::kUnavailable);
  v1::JobDefinition job = Job();
  job.mutable_parameters(1)->set_name("a.weight");
  EXPECT_FALSE(preflight::Run(job, OffersOf(Shard(), 2).value()).ok());
}

}  // namespace
}  // namespace kaon::preflight
