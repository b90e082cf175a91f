#include "server/coordinator/machine/checkpoint_run.h"

#include <gtest/gtest.h>

namespace kaon::coordinator {
namespace {

constexpr uint64_t kAttempt = 77;

CheckpointRun NewRun(std::optional<CallId> call = std::nullopt) {
  checkpoint::CheckpointFacts facts;
  facts.id = "tiny-1-9";
  facts.last_record.mutable_plan()->set_position(9);
  return CheckpointRun(facts, kAttempt, 2, call);
}

v1::CheckpointReport OfRun() {
  v1::CheckpointReport report;
  report.set_id("tiny-1-9");
  report.set_attempt(kAttempt);
  return report;
}

v1::CheckpointReport Part(uint32_t shard) {
  v1::CheckpointReport report = OfRun();
  report.mutable_part()->set_shard(shard);
  return report;
}

TEST(CheckpointRunTest, AsksForTheStateAfterTheNewestEntry) {
  const CheckpointRun run = NewRun();
  EXPECT_EQ(run.Ask().id(), "tiny-1-9");
  EXPECT_EQ(run.Ask().position(), 9u);
  EXPECT_EQ(run.Ask().attempt(), kAttempt);
}

TEST(CheckpointRunTest, HandsOutThePartsOnceWhenAllAreThere) {
  CheckpointRun run = NewRun();
  EXPECT_TRUE(run.OnReport(1, Part(1)).ok());
  EXPECT_FALSE(run.Lacks(1));
  EXPECT_TRUE(run.Lacks(0));
  EXPECT_FALSE(run.TakeParts());
  EXPECT_EQ(run.Progress(), "1 of 2 parts of checkpoint tiny-1-9");
  EXPECT_TRUE(run.OnReport(0, Part(0)).ok());
  const auto parts = run.TakeParts();
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ((*parts)[1].shard(), 1u);
  EXPECT_TRUE(run.handed_out());
  EXPECT_FALSE(run.TakeParts());
}

TEST(CheckpointRunTest, AShardThatIsStillWritingLacksItsPart) {
  CheckpointRun run = NewRun();
  v1::CheckpointReport report = OfRun();
  report.set_written_bytes(5);
  EXPECT_TRUE(run.OnReport(0, report).ok());
  EXPECT_TRUE(run.Lacks(0));
}

TEST(CheckpointRunTest, AShardsErrorNamesTheShard) {
  CheckpointRun run = NewRun();
  v1::CheckpointReport report = OfRun();
  report.set_error_code(static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  report.set_error("/ckpt is full");
  const absl::Status status = run.OnReport(1, report);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "shard 1: /ckpt is full");
  // Of an earlier checkpoint, or an earlier attempt at this one, it is no news.
  report.set_attempt(kAttempt - 1);
  EXPECT_TRUE(run.OnReport(1, report).ok());
  report.set_attempt(kAttempt);
  report.set_id("tiny-1-7");
  EXPECT_TRUE(run.OnReport(1, report).ok());
}

TEST(CheckpointRunTest, APartOfAnEarlierAttemptIsNone) {
  CheckpointRun run = NewRun();
  v1::CheckpointReport report = Part(1);
  report.set_attempt(kAttempt - 1);
  EXPECT_TRUE(run.OnReport(1, report).ok());
  EXPECT_TRUE(run.Lacks(1));
}

TEST(CheckpointRunTest, GoesOnWithoutItsCaller) {
  CheckpointRun run = NewRun(7);
  EXPECT_EQ(run.call(), 7u);
  run.ForgetCall();
  EXPECT_FALSE(run.call().has_value());
}

}  // namespace
}  // namespace kaon::coordinator
