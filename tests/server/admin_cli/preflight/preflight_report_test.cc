#include "server/admin_cli/preflight/preflight_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

preflight::Report Planned() {
  preflight::Report report;
  report.job = "planned";
  report.world_size = 4;
  report.groups.push_back({"muon", "muon", 1, 6, 24, 24, 24, 24});
  report.total = report.groups[0];
  preflight::ShardVerdict& shard = report.shards.emplace_back();
  shard.offer.memory.capacity_bytes = 1000;
  shard.offer.memory.reserved_bytes = 10;
  shard.offer.memory.staging_bytes = 400;
  shard.offer.backend = "cpu";
  shard.offer.durability = "journal";
  shard.needs.tensor_bytes = 72;
  shard.needs.workspace_bytes = 5;
  shard.needs.sum_bytes = 24;
  shard.needs.reserved_bytes = 10;
  shard.elements = 6;
  shard.disk_bytes = 7;
  shard.refusal = absl::ResourceExhaustedError("no room");
  report.push_bytes = 24;
  report.pull_bytes = 24;
  return report;
}

TEST(PreflightReportTest, JsonHasTheDocumentedKeysInOrder) {
  EXPECT_EQ(PreflightJson(Planned()).dump(),
            R"({"job":"planned","world_size":4,"fits":false,"running_job":"","groups":[{"group":)"
            R"("muon","rule":"muon","parameters":1,"elements":6,"weight_bytes":24,)"
            R"("next_weight_bytes":24,"state_bytes":24,"gradient_sum_bytes":24}],"total":)"
            R"({"parameters":1,"elements":6,"weight_bytes":24,"next_weight_bytes":24,)"
            R"("state_bytes":24,"gradient_sum_bytes":24},"shards":[{"shard":0,"address":"",)"
            R"("parameters":0,"elements":6,"tensor_bytes":72,"workspace_bytes":5,)"
            R"("gradient_sum_bytes":24,"nvme_bytes":0,"reserved_bytes":10,"used_bytes":111,)"
            R"("capacity_bytes":1000,"durability":"journal","disk_bytes":7,"backend":"cpu",)"
            R"("threads":1,"fits":false,"problem":"no room"}],"largest_matrix":null,)"
            R"("push_bytes":24,"pull_bytes":24,"staging_bytes_per_worker":100})");
}

TEST(PreflightReportTest, TablesHaveUnitsAndWideOnesMoreOfEachShard) {
  preflight::Report report = Planned();
  EXPECT_THAT(PreflightText(report), Not(HasSubstr("the job fits")));
  report.shards[0].refusal = absl::OkStatus();
  report.largest_matrix = {"h.weight", 2, 3};
  report.running_job = "other";
  const std::string text = PreflightText(report);
  EXPECT_THAT(text, HasSubstr("job planned, 4 workers, 1 shards\n"));
  EXPECT_THAT(text,
              HasSubstr("    0     72 B        5 B           24 B      10 B   111 B    1000 B"));
  EXPECT_THAT(text, HasSubstr("largest matrix: 2 x 3 of parameter h.weight\n"));
  EXPECT_THAT(text, HasSubstr("staging of a worker: 100 B\n"));
  EXPECT_THAT(text, HasSubstr("the cluster runs job other, which must end"));
  EXPECT_THAT(text, HasSubstr("the job fits\n"));
  EXPECT_THAT(text, Not(HasSubstr("DURABILITY")));
  EXPECT_THAT(PreflightWideText(report), HasSubstr("DURABILITY"));
}

}  // namespace
}  // namespace kaon::admin_cli
