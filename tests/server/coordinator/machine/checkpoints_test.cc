#include "server/coordinator/machine/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/server/coordinator/machine/machine_harness.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CallId kCall = 7;

StepMachineOptions Options(uint64_t seed = 1) {
  StepMachineOptions options;
  options.shard_addresses = {"shard:0", "shard:1"};
  options.seed = seed;
  options.takes_checkpoints = true;
  options.checkpoint_every_steps = 3;
  return options;
}

JobState JobAt(uint64_t step) {
  JobState job;
  job.Read(StateAfterStep(step));
  return job;
}

// Two shards write the checkpoints of one job, at whose newest step each test begins.
class CheckpointsTest : public testing::Test {
 protected:
  // Returns the attempt.
  uint64_t Start(std::optional<CallId> call = kCall) {
    checkpoints_.Start("mine", call, job_);
    return checkpoints_.Ask(0)->attempt();
  }
  v1::CheckpointReport ReportOf(uint64_t attempt) {
    v1::CheckpointReport report;
    report.set_id("mine");
    report.set_attempt(attempt);
    return report;
  }
  Actions Part(int shard, uint64_t attempt) {
    v1::CheckpointReport report = ReportOf(attempt);
    report.mutable_part()->set_shard(shard);
    return checkpoints_.OnReport(shard, report, {});
  }
  Actions Parts(uint64_t attempt) {
    EXPECT_THAT(Part(0, attempt), IsEmpty());
    return Part(1, attempt);
  }
  Actions Error(int shard, uint64_t attempt) {
    v1::CheckpointReport report = ReportOf(attempt);
    report.set_error_code(static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
    report.set_error("/ckpt is full");
    return checkpoints_.OnReport(shard, report, {});
  }
  Actions Written(int shard, uint64_t attempt, uint64_t bytes) {
    v1::CheckpointReport report = ReportOf(attempt);
    report.set_written_bytes(bytes);
    report.set_total_bytes(10);
    return checkpoints_.OnReport(shard, report, {});
  }
  Actions LetPass(absl::Duration time) {
    now_ += time;
    return checkpoints_.Tick(now_);
  }

  JobState job_ = JobAt(3);
  Checkpoints checkpoints_{Options()};
  absl::Time now_ = absl::UnixEpoch();
};

const FinishCheckpoint& FinishOf(const Actions& actions) {
  return std::get<FinishCheckpoint>(actions.at(0));
}

// The answer follows the end of the checkpoint.
absl::Status AnswerOf(const Actions& actions) {
  const auto& reply = std::get<ReplyCreate>(actions.back());
  EXPECT_EQ(reply.call, kCall);
  return reply.response.status();
}

TEST_F(CheckpointsTest, EndsWithTheFirstError) {
  const uint64_t attempt = Start();
  EXPECT_THAT(Part(0, attempt), IsEmpty());
  const Actions ended = Error(1, attempt);
  EXPECT_EQ(AnswerOf(ended), absl::ResourceExhaustedError("shard 1: /ckpt is full"));
  EXPECT_THAT(FinishOf(ended).parts, IsEmpty());
  EXPECT_EQ(FinishOf(ended).facts.id, "mine");
  EXPECT_FALSE(checkpoints_.Ask(1));
}

// Two tries of one name, at one entry: the second ignores the reports of the first.
TEST_F(CheckpointsTest, EachTryIsAnAttemptOfItsOwn) {
  const uint64_t first = Start();
  EXPECT_EQ(FinishOf(Error(0, first)).attempt, first);
  const uint64_t second = Start();
  ASSERT_NE(second, first);
  EXPECT_THAT(Error(0, first), IsEmpty());
  EXPECT_THAT(Part(1, first), IsEmpty());
  EXPECT_THAT(checkpoints_.OnFinished(first, absl::InternalError("late")), IsEmpty());
  const Actions finish = Parts(second);
  EXPECT_EQ(FinishOf(finish).attempt, second);
  EXPECT_EQ(FinishOf(finish).parts.size(), 2u);
  EXPECT_TRUE(AnswerOf(checkpoints_.OnFinished(second, v1::CheckpointSummary())).ok());
}

TEST_F(CheckpointsTest, CoordinatorsDrawTheirOwnNumbers) {
  Checkpoints other(Options(/*seed=*/2));
  other.Start("mine", kCall, job_);
  EXPECT_NE(other.Ask(0)->attempt(), Start());
}

TEST_F(CheckpointsTest, EndsOnceNoShardMakesProgress) {
  const uint64_t attempt = Start();
  for (uint64_t bytes = 1; bytes <= 5; ++bytes) {
    // The time does not matter as long as one of them writes.
    EXPECT_THAT(Written(1, attempt, bytes), IsEmpty());
    if (bytes == 2) Part(0, attempt);
    ASSERT_THAT(LetPass(absl::Minutes(6)), IsEmpty()) << bytes;
  }
  // A report that repeats or comes late is no progress.
  Written(1, attempt, 5);
  Written(1, attempt, 3);
  Part(0, attempt);
  const Actions ended = LetPass(absl::Minutes(10));
  EXPECT_EQ(AnswerOf(ended),
            absl::DeadlineExceededError("checkpoint mine has come no further for 10m: shard 1 has "
                                        "written 5 of 10 bytes"));
  EXPECT_EQ(FinishOf(ended).attempt, attempt);
  EXPECT_THAT(FinishOf(ended).parts, IsEmpty());
  EXPECT_EQ(FinishOf(ended).why, AnswerOf(ended));
  // The late part finishes nothing, and another checkpoint may start.
  EXPECT_THAT(Part(1, attempt), IsEmpty());
  EXPECT_TRUE(checkpoints_.Check(job_).ok());
  EXPECT_NE(Start(), attempt);
}

// A caller that was told of the failure must not find the checkpoint later.
TEST_F(CheckpointsTest, DoesNotEndWhileItsManifestIsWritten) {
  const uint64_t attempt = Start();
  Parts(attempt);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(LetPass(absl::Minutes(11)), IsEmpty());
  EXPECT_THAT(checkpoints_.Abandon(absl::UnavailableError("the shards are read again")), IsEmpty());
  EXPECT_TRUE(AnswerOf(checkpoints_.OnFinished(attempt, v1::CheckpointSummary())).ok());
}

TEST_F(CheckpointsTest, AManifestThatCannotBeWrittenLeavesNothing) {
  const uint64_t attempt = Start();
  Parts(attempt);
  const absl::Status there = absl::AlreadyExistsError("checkpoint mine is there");
  const Actions ended = checkpoints_.OnFinished(attempt, there);
  EXPECT_EQ(AnswerOf(ended), there);
  EXPECT_THAT(FinishOf(ended).parts, IsEmpty());
  EXPECT_FALSE(FinishOf(ended).is_there);
}

// A holder before this one took the periodic checkpoint already.
TEST_F(CheckpointsTest, APeriodicCheckpointThatIsThereHasNotFailed) {
  const uint64_t attempt = Start(std::nullopt);
  EXPECT_TRUE(FinishOf(Parts(attempt)).retain);
  const Actions ended =
      checkpoints_.OnFinished(attempt, absl::AlreadyExistsError("checkpoint mine is there"));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_THAT(FinishOf(ended).parts, IsEmpty());
  EXPECT_TRUE(FinishOf(ended).is_there);
}

// The caller did not ask for older checkpoints to go, whether it still waits or not.
TEST_F(CheckpointsTest, ACheckpointOnRequestRemovesNoOther) {
  const uint64_t attempt = Start();
  checkpoints_.Cancel(kCall);
  EXPECT_FALSE(FinishOf(Parts(attempt)).retain);
  EXPECT_THAT(checkpoints_.OnFinished(attempt, v1::CheckpointSummary()), IsEmpty());
}

TEST_F(CheckpointsTest, IsRefusedWithoutStateOrDirectoryAndOneAtATime) {
  EXPECT_THAT(checkpoints_.Check(JobState()).message(), HasSubstr("weights are not loaded"));
  StepMachineOptions options = Options();
  options.takes_checkpoints = false;
  EXPECT_THAT(Checkpoints(options).Check(job_).message(), HasSubstr("no checkpoint directory"));
  EXPECT_TRUE(checkpoints_.Check(job_).ok());
  Start();
  EXPECT_THAT(checkpoints_.Check(job_).message(), HasSubstr("0 of 2 parts of checkpoint mine"));
}

TEST_F(CheckpointsTest, OneIsDueEverySoManySteps) {
  for (uint64_t step = 0; step <= 7; ++step) {
    EXPECT_EQ(checkpoints_.IsDue(JobAt(step)), step == 3 || step == 6) << step;
  }
  JobState changed = job_;
  v1::StepRecord change;
  change.mutable_plan()->mutable_group_change();
  changed.record = DecidedRecord(change);
  EXPECT_FALSE(checkpoints_.IsDue(changed));
  Start();
  EXPECT_FALSE(checkpoints_.IsDue(job_));
}

TEST_F(CheckpointsTest, AnIdIsMadeOfAJobsNameCutToFit) {
  job_.registration->mutable_definition()->set_name(std::string(80, 'x'));
  checkpoints_.Start("", kCall, job_);
  EXPECT_EQ(checkpoints_.Ask(0)->id(), std::string(60, 'x') + "-1-5");
}

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

TEST(StepMachineCheckpointTest, EveryShardIsAskedAndTheManifestFollowsTheLastPart) {
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
TEST(StepMachineCheckpointTest, IsAskedForBetweenTwoDecisionsWhileAStepIsOpen) {
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

TEST(StepMachineCheckpointTest, IsGivenUpWithTheBallot) {
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

TEST(StepMachineCheckpointTest, OnceEveryPartIsDurableTheShardsDoNotMatter) {
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
TEST(StepMachineCheckpointTest, TheNextOneIsTakenAfterOneThatCameNoFurther) {
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

TEST(StepMachineCheckpointTest, OneIsTakenEverySoManySteps) {
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
