#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

std::optional<v1::TakeCheckpoint> Asked(MachineHarness& harness, int shard) {
  std::optional<v1::TakeCheckpoint> asked;
  for (const v1::CoordinatorToShard& message : harness.sent(shard)) {
    if (message.has_checkpoint()) asked = message.checkpoint();
  }
  return asked;
}

// On the newest attempt, unless it is named.
void Report(MachineHarness& harness, int shard, const std::string& id,
            const std::string& error = "", uint64_t attempt = 0) {
  v1::ShardToCoordinator message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_id(id);
  report.set_attempt(attempt == 0 ? harness.attempt() : attempt);
  if (error.empty()) {
    report.mutable_part()->set_shard(shard);
  } else {
    report.set_error_code(static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
    report.set_error(error);
  }
  harness.FromShard(shard, message);
}

absl::Status StatusOf(MachineHarness& harness, CallId call) {
  const auto answer = harness.created(call);
  EXPECT_TRUE(answer.has_value()) << harness.phase();
  return answer ? answer->status() : absl::UnknownError("open");
}

TEST(CheckpointTest, EveryShardIsAskedAndTheManifestFollowsTheLastPart) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.Create("");
  for (int shard : {0, 1}) {
    ASSERT_TRUE(Asked(harness, shard));
    EXPECT_EQ(Asked(harness, shard)->id(), "tiny-1-2");
    EXPECT_EQ(Asked(harness, shard)->position(), 2u);
  }
  Report(harness, 0, "tiny-1-2");
  EXPECT_TRUE(harness.finished().empty());
  // The one that has answered is not asked again.
  harness.ClearSent();
  harness.Tick();
  EXPECT_FALSE(Asked(harness, 0));
  EXPECT_TRUE(Asked(harness, 1));
  Report(harness, 1, "tiny-1-2");
  ASSERT_EQ(harness.finished().size(), 1u);
  const FinishCheckpoint& finish = harness.finished()[0];
  EXPECT_EQ(finish.parts.size(), 2u);
  EXPECT_EQ(finish.facts.last_record.plan().position(), 2u);
  EXPECT_EQ(finish.facts.step, 0u);
  EXPECT_FALSE(finish.retain);
  EXPECT_FALSE(harness.created(call));
  v1::CheckpointSummary summary;
  summary.set_id("tiny-1-2");
  harness.CheckpointFinished(summary);
  ASSERT_TRUE(StatusOf(harness, call).ok());
  EXPECT_EQ((*harness.created(call))->checkpoint().id(), "tiny-1-2");
}

// Before DECISION of the next entry, so that every shard freezes the same state.
TEST(CheckpointTest, IsAskedForBetweenTwoDecisionsWhileAStepIsOpen) {
  MachineHarness harness;
  harness.Train();
  for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, 1).ok());
  const v1::StepPlan step = *harness.SentPlan(0);
  harness.Vote(0, step);
  harness.Create("mine");
  EXPECT_EQ(Asked(harness, 1)->position(), step.position() - 1);
  EXPECT_FALSE(harness.SentRecord(1));
  harness.Vote(1, step);
  EXPECT_TRUE(harness.SentRecord(1));
  // While the step is applied it is of that one.
  Report(harness, 0, "mine", "full");
  harness.Create("second");
  EXPECT_EQ(Asked(harness, 1)->position(), step.position());
}

TEST(CheckpointTest, IsGivenUpWithTheBallot) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.Create("mine");
  harness.machine().OnShardDisconnected(0);
  harness.machine().OnShardConnected(0);
  harness.Tick();
  EXPECT_EQ(StatusOf(harness, call).code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(harness.finished().size(), 1u);
  EXPECT_TRUE(harness.finished()[0].parts.empty());
  // A part that comes late finishes nothing.
  for (int shard : {0, 1}) Report(harness, shard, "mine");
  EXPECT_EQ(harness.finished().size(), 1u);
}

TEST(CheckpointTest, OnceEveryPartIsDurableTheShardsDoNotMatter) {
  MachineHarness harness;
  harness.Train();
  const CallId call = harness.Create("mine");
  for (int shard : {0, 1}) Report(harness, shard, "mine");
  harness.machine().OnShardDisconnected(0);
  harness.machine().OnShardConnected(0);
  harness.CheckpointFinished(v1::CheckpointSummary());
  EXPECT_TRUE(StatusOf(harness, call).ok());
  EXPECT_EQ(harness.finished().size(), 1u);
}

// Both shards are heard all the time.
void LetPass(MachineHarness& harness, absl::Duration time) {
  constexpr absl::Duration kTick = absl::Milliseconds(500);
  v1::ShardToCoordinator alive;
  alive.mutable_heartbeat();
  for (absl::Duration passed; passed < time; passed += kTick) {
    for (int shard : {0, 1}) harness.FromShard(shard, alive);
    harness.Tick(kTick);
  }
}

// They are taken by themselves as before after one that nobody asked for, and nobody is told of.
TEST(CheckpointTest, TheNextOneIsTakenAfterOneThatCameNoFurther) {
  MachineHarness harness;
  harness.Train();
  for (uint64_t step = 1; step <= 6; ++step) {
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, step).ok());
    harness.VoteAndApply();
    if (step == 3) LetPass(harness, absl::Minutes(11));
  }
  ASSERT_EQ(harness.finished().size(), 1u);
  EXPECT_EQ(harness.finished()[0].facts.id, "tiny-1-5");
  EXPECT_EQ(harness.finished()[0].why.code(), absl::StatusCode::kDeadlineExceeded);
  for (int shard : {0, 1}) Report(harness, shard, "tiny-1-8");
  ASSERT_EQ(harness.finished().size(), 2u);
  EXPECT_EQ(harness.finished()[1].parts.size(), 2u);
  EXPECT_TRUE(harness.finished()[1].retain);
}

TEST(CheckpointTest, OneIsTakenEverySoManySteps) {
  MachineHarness harness;
  harness.Train();
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t rank : {0, 1}) ASSERT_TRUE(harness.Begin(rank, step).ok());
    const v1::StepPlan plan = *harness.SentPlan(0);
    for (int shard : {0, 1}) harness.Vote(shard, plan);
    for (int shard : {0, 1}) harness.Applied(shard, plan.position());
    // MachineHarness asks for one every third step.
    EXPECT_EQ(Asked(harness, 0).has_value(), step == 3) << step;
    if (step < 3) harness.ClearSent();
  }
  for (int shard : {0, 1}) Report(harness, shard, "tiny-1-5");
  ASSERT_EQ(harness.finished().size(), 1u);
  EXPECT_TRUE(harness.finished()[0].retain);
  EXPECT_EQ(harness.finished()[0].facts.step, 3u);
  EXPECT_TRUE(harness.finished()[0].in_use.empty());
  // That a holder before this one took it already is no failure.
  harness.CheckpointFinished(absl::AlreadyExistsError("checkpoint tiny-1-5 is there"));
  ASSERT_EQ(harness.finished().size(), 2u);
  EXPECT_TRUE(harness.finished()[1].parts.empty());
  EXPECT_TRUE(harness.finished()[1].is_there);
}

}  // namespace
}  // namespace kaon::coordinator
