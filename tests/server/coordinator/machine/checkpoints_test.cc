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

}  // namespace
}  // namespace kaon::coordinator
