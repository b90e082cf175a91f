#include "server/admin_cli/shard_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

// Shard 1 of two stopped at position 7.
v1::GetStatusResponse StatusOf(bool connected, uint64_t position = 7) {
  v1::GetStatusResponse status;
  status.set_holder(true);
  status.set_phase("step 6: waiting for rank 0");
  for (uint32_t shard : {0, 1}) {
    v1::ShardStatus& row = *status.add_shards();
    row.set_shard(shard);
    row.set_connected(shard == 0 || connected);
    row.mutable_description()->mutable_state()->set_applied_position(position);
  }
  return status;
}

DrainedShard Drained() {
  DrainedShard drained;
  drained.shard = 1;
  drained.stopped.set_position(7);
  drained.stopped.set_step(5);
  return drained;
}

TEST(ShardCommandTest, AShardIsBackOnceTheHolderHasIt) {
  EXPECT_FALSE(*IsBack(StatusOf(/*connected=*/false), 1, 7));
  EXPECT_TRUE(*IsBack(StatusOf(/*connected=*/true), 1, 7));
  EXPECT_TRUE(*IsBack(StatusOf(/*connected=*/true, 9), 1, 7));
  v1::GetStatusResponse status = StatusOf(/*connected=*/true);
  status.mutable_shards(1)->set_problem("not connected");
  EXPECT_FALSE(*IsBack(status, 1, 7));
  status = StatusOf(/*connected=*/true);
  status.set_holder(false);
  EXPECT_FALSE(*IsBack(status, 1, 7));
}

TEST(ShardCommandTest, AShardThatIsBackWithoutItsStateIsAnError) {
  const absl::Status lost = IsBack(StatusOf(/*connected=*/true, 0), 1, 7).status();
  EXPECT_TRUE(absl::IsDataLoss(lost));
  EXPECT_THAT(lost.message(), HasSubstr("back at position 0, it stopped at 7"));
  v1::GetStatusResponse status = StatusOf(/*connected=*/true);
  status.mutable_shards(1)->mutable_description()->mutable_state()->set_data_loss("torn");
  EXPECT_EQ(IsBack(status, 1, 7).status(), absl::DataLossError("shard 1: torn"));
}

TEST(ShardCommandTest, TellsOnceWhatItWaitsFor) {
  int asked = 0;
  int pauses = 0;
  std::ostringstream progress;
  EXPECT_EQ(AwaitBack(
                Drained(), absl::Hours(1),
                [&]() -> absl::StatusOr<v1::GetStatusResponse> {
                  if (++asked <= 2) return absl::UnavailableError("no coordinator");
                  return StatusOf(/*connected=*/asked > 4);
                },
                [&](absl::Duration) { ++pauses; }, progress),
            absl::OkStatus());
  EXPECT_EQ(pauses, 4);
  EXPECT_EQ(progress.str(),
            "kaonctl: UNAVAILABLE: no coordinator\nkaonctl: step 6: waiting for rank 0\n");
}

TEST(ShardCommandTest, GivesUpWithWhatTheJobWaitsFor) {
  std::ostringstream progress;
  const absl::Status late = AwaitBack(
      Drained(), absl::ZeroDuration(), [] { return StatusOf(/*connected=*/false); },
      [](absl::Duration) {}, progress);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(late.message(), HasSubstr("shard 1 is drained and not back"));
  EXPECT_THAT(late.message(), HasSubstr("step 6: waiting for rank 0"));
}

TEST(ShardCommandTest, PrintsWhereItStoppedAndHowLongItWasAway) {
  DrainedShard drained = Drained();
  EXPECT_EQ(DrainedText(drained), "shard 1: stopped after step 5 with a snapshot of it\n");
  EXPECT_EQ(DrainedJson(drained).dump(),
            R"({"shard":1,"position":7,"step":5,"away_seconds":null})");
  drained.away_seconds = 1.5;
  EXPECT_EQ(DrainedText(drained),
            "shard 1: stopped after step 5 with a snapshot of it, back after 1.5 s\n");
  EXPECT_EQ(DrainedJson(drained)["away_seconds"], 1.5);
}

}  // namespace
}  // namespace kaon::admin_cli
