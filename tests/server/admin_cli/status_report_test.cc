#include "server/admin_cli/status_report.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace kaon::admin_cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse TwoShards() {
  v1::GetStatusResponse status;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    holder: true ballot { counter: 3 incarnation_high: 1 incarnation_low: 2 }
    shards { shard: 0 address: "127.0.0.1:1" connected: true description {
      state { applied_position: 5 applied_step: 3 durability: DURABILITY_MODE_NONE }
      applied_steps: 2 skipped_steps: 1 weights_digest: 0xffffffffffffffff backend: "cpu+onednn"
      build: "kaon 1" device_class: "Xeon" } }
    shards { shard: 1 address: "127.0.0.1:2" connected: true description { weights_digest: 3 } }
    workers { rank: 1 attempt { ballot { counter: 3 } number: 7 } begun_step: 4 }
    job: "run" phase: "step 4" applied_step: 3)",
                                                            &status));
  return status;
}

TEST(StatusReportTest, WeightsDigestIsTheSumOfTheShards) {
  EXPECT_EQ(StatusJson(TwoShards())["weights_digest"], "0000000000000002");
}

TEST(StatusReportTest, HasNoWeightsDigestWhileAShardIsAway) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(1)->set_connected(false);
  status.mutable_shards(1)->set_problem("connection refused");
  EXPECT_TRUE(StatusJson(status)["weights_digest"].is_null());
  EXPECT_NE(StatusText(status).find("connection refused"), std::string::npos);
}

TEST(StatusReportTest, JsonHasTheDocumentedKeys) {
  const Json json = StatusJson(TwoShards());
  EXPECT_EQ(json["phase"], "step 4");
  EXPECT_EQ(json["applied_step"], 3);
  EXPECT_EQ(json["ballot"]["incarnation"], "00000000000000010000000000000002");
  EXPECT_EQ(json["shards"][0]["durability"], "none");
  EXPECT_EQ(json["shards"][0]["skipped_steps"], 1);
  EXPECT_EQ(json["shards"][0]["build"], "kaon 1");
  EXPECT_EQ(json["shards"][0]["device_class"], "Xeon");
  EXPECT_EQ(json["workers"][0]["attempt"], "3.7");
}

TEST(StatusReportTest, TextShowsTheDurabilityMode) {
  EXPECT_NE(StatusText(TwoShards()).find("none"), std::string::npos);
}

TEST(StatusReportTest, ShowsWhatAShardKeepsOnDisk) {
  v1::GetStatusResponse status = TwoShards();
  v1::DescribeShardResponse& facts = *status.mutable_shards(0)->mutable_description();
  facts.mutable_state()->set_durability(v1::DURABILITY_MODE_JOURNAL);
  facts.mutable_journal()->set_bytes(123456);
  facts.mutable_journal()->set_recovered_entries(7);
  facts.mutable_journal()->set_recovery_seconds(0.5);
  facts.mutable_journal()->set_torn_tail("12 bytes");
  const Json row = StatusJson(status)["shards"][0];
  EXPECT_EQ(row["durability"], "journal");
  EXPECT_EQ(row["journal_bytes"], 123456);
  EXPECT_EQ(row["recovered_entries"], 7);
  EXPECT_EQ(row["recovery_seconds"], 0.5);
  EXPECT_EQ(row["torn_tail"], "12 bytes");
  EXPECT_EQ(row["read_only_reason"], "");
  EXPECT_NE(StatusText(status).find("120.6 KiB"), std::string::npos);
}

TEST(StatusReportTest, ShowsTheNewestSnapshotAndWhyThereIsNoNewerOne) {
  v1::GetStatusResponse status = TwoShards();
  EXPECT_EQ(StatusJson(status)["shards"][0]["snapshot_position"], 0);
  v1::SnapshotStatus& snapshot =
      *status.mutable_shards(0)->mutable_description()->mutable_snapshot();
  snapshot.set_position(44);
  snapshot.set_step(42);
  snapshot.set_bytes(1000);
  snapshot.set_seconds(0.5);
  snapshot.set_in_progress(true);
  snapshot.set_problem("no space left");
  const Json row = StatusJson(status)["shards"][0];
  EXPECT_EQ(row["snapshot_position"], 44);
  EXPECT_EQ(row["snapshot_step"], 42);
  EXPECT_EQ(row["snapshot_bytes"], 1000);
  EXPECT_EQ(row["snapshot_seconds"], 0.5);
  EXPECT_EQ(row["snapshot_in_progress"], true);
  EXPECT_EQ(row["snapshot_problem"], "no space left");
  EXPECT_NE(StatusText(status).find("step 42"), std::string::npos);
  EXPECT_NE(StatusText(status).find("snapshot: no space left"), std::string::npos);
}

TEST(StatusReportTest, ShowsWhatEachWorkerSentOverNccl) {
  v1::GetStatusResponse status;
  v1::ShardStatus& shard = *status.add_shards();
  shard.set_connected(true);
  EXPECT_EQ(StatusText(status).find("NCCL"), std::string::npos);
  v1::NcclPair& pair = *shard.mutable_description()->add_nccl_pairs();
  pair.set_rank(3);
  pair.set_session(9);
  pair.set_state("ready");
  pair.set_sessions(2);
  pair.set_transfers(5);
  pair.set_bytes(2048);
  pair.set_aborts(1);
  EXPECT_EQ(StatusJson(status)["shards"][0]["nccl"].dump(),
            R"([{"rank":3,"session":9,"state":"ready","sessions":2,"transfers":5,"bytes":2048,)"
            R"("aborts":1}])");
  EXPECT_NE(
      StatusText(status).find("NCCL SHARD  RANK  STATE  SESSION  TRANSFERS    BYTES  ABORTS\n"
                              "         0     3  ready        9          5  2.0 KiB       1\n"),
      std::string::npos)
      << StatusText(status);
}

// P18: "service turns read-only (Pull works), says why".
TEST(StatusReportTest, TextSaysWhyAShardIsReadOnly) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(0)->mutable_description()->mutable_journal()->set_read_only_reason(
      "no space left");
  EXPECT_NE(StatusText(status).find("read-only: no space left"), std::string::npos);
}

TEST(StatusReportTest, TextNamesLostState) {
  v1::GetStatusResponse status = TwoShards();
  status.mutable_shards(0)->mutable_description()->mutable_state()->set_data_loss("state is gone");
  EXPECT_NE(StatusText(status).find("state is gone"), std::string::npos);
}

// A shard that restarted has applied as many steps as the others, most of them before its start.
TEST(StatusReportTest, StepsSinceTheStartAreNamedSoAndOnlyInTheWideTable) {
  EXPECT_THAT(StatusText(TwoShards()), Not(HasSubstr("APPLIED")));
  EXPECT_THAT(StatusWideText(TwoShards()), HasSubstr("APPLIED SINCE START"));
  EXPECT_THAT(StatusWideText(TwoShards()), HasSubstr("Xeon"));
}

TEST(StatusReportTest, AShardThatDoesNotAnswerHasNoNumbers) {
  v1::GetStatusResponse status = TwoShards();
  EXPECT_TRUE(AllShardsSeen(status).ok());
  v1::ShardStatus& away = *status.mutable_shards(1);
  away.set_connected(false);
  away.clear_description();
  away.set_problem("connection refused");
  EXPECT_THAT(StatusText(status), ContainsRegex("127.0.0.1:2  no  [ -]*connection refused\n"));
  EXPECT_THAT(AllShardsSeen(status).message(),
              HasSubstr("shard 1 at 127.0.0.1:2: connection refused"));
}

TEST(StatusReportTest, ShowsTimesInUtc) {
  v1::GetStatusResponse status = TwoShards();
  EXPECT_TRUE(StatusJson(status)["started"].is_null());
  status.set_started_unix_millis(1795749300000);
  EXPECT_EQ(StatusJson(status)["started"], "2026-11-27T03:15:00Z");
  EXPECT_THAT(StatusText(status), HasSubstr("started         2026-11-27T03:15:00Z"));
}

// Only the holder of the shards knows the workers.
TEST(StatusReportTest, WorkersOfAStandbyAreUnknown) {
  v1::GetStatusResponse status = TwoShards();
  status.set_holder(false);
  EXPECT_TRUE(StatusJson(status)["workers"].is_null());
  EXPECT_THAT(StatusText(status), HasSubstr("workers         unknown"));
  EXPECT_EQ(WorkerListJson(TwoShards())["workers"].size(), 1u);
}

TEST(StatusReportTest, OneShardIsShownWithItsJob) {
  v1::ShardStatus shard = TwoShards().shards(0);
  shard.mutable_description()
      ->mutable_state()
      ->mutable_registration()
      ->mutable_definition()
      ->set_name("run");
  EXPECT_EQ(OneShardJson(shard)["job"], "run");
  EXPECT_EQ(OneShardJson(shard)["applied_step"], 3);
  EXPECT_THAT(OneShardText(shard), HasSubstr("127.0.0.1:1"));
}

TEST(StatusReportTest, JobAndStepAreUnknownIfNoShardToldThem) {
  v1::GetStatusResponse status = TwoShards();
  status.clear_job();
  EXPECT_EQ(StatusJson(status)["job"], "");
  status.mutable_shards(1)->set_connected(false);
  EXPECT_TRUE(StatusJson(status)["job"].is_null());
  EXPECT_TRUE(StatusJson(status)["applied_step"].is_null());
  EXPECT_THAT(StatusText(status), HasSubstr("applied step    unknown"));
}

}  // namespace
}  // namespace kaon::admin_cli
