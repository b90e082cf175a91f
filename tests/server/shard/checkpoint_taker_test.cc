#include "server/shard/checkpoint_taker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/manifest.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

class CheckpointTakerTest : public testing::Test {
 protected:
  CheckpointTakerTest() {
    shard_.SetCheckpoints(&files_);
    shard_.Load();
  }

  static void Train(DrivenShard& shard, uint64_t step) {
    shard.Train(step, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
  }

  v1::CheckpointReport Take(const std::string& id, uint64_t position, uint64_t attempt = 1) {
    return Last(shard_.Take(id, position, attempt));
  }

  // An order is answered at once, and again when its part is written.
  static v1::CheckpointReport Last(const std::vector<v1::ShardToCoordinator>& answers) {
    EXPECT_THAT(answers.size(), testing::AnyOf(1, 2));
    return answers.empty() ? v1::CheckpointReport() : answers.back().checkpoint();
  }

  simulation::SimulatedDirectory files_{"checkpoints", 1};
  DrivenShard shard_;
};

TEST_F(CheckpointTakerTest, WritesTheStateAfterTheAppliedEntry) {
  Train(shard_, 1);
  const v1::CheckpointReport report = Take("a", 3);
  EXPECT_EQ(report.error(), "");
  ASSERT_TRUE(report.has_part());
  EXPECT_EQ(report.part().position(), 3u);
  EXPECT_EQ(report.written_bytes(), report.total_bytes());
  checkpoint::CheckpointDirectory directory(files_);
  const v1::ShardState state = shard_.state();
  ASSERT_TRUE(directory
                  .Commit(checkpoint::BuildManifest({"a", state.registration(),
                                                     state.applied_record(), state.applied_step()},
                                                    {report.part()})
                              .value())
                  .ok());
  EXPECT_TRUE(directory.Verify("a").ok());
}

TEST_F(CheckpointTakerTest, WritesNoStateThatIsNotFinite) {
  DrivenShard shard;
  shard.SetCheckpoints(&files_);
  shard.Load(RegistrationPlan(1, 1), std::numeric_limits<float>::infinity());
  const v1::CheckpointReport report = Last(shard.Take("a", 2, 1));
  EXPECT_EQ(report.error_code(), static_cast<uint32_t>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(report.error(),
            "parameter 'w' 'weight' has values that are not finite, must be finite: go back to an "
            "earlier checkpoint");
  EXPECT_TRUE(files_.List().value().empty());
}

TEST_F(CheckpointTakerTest, WaitsForTheNextEntry) {
  const v1::CheckpointReport waiting = Take("a", 3);
  EXPECT_EQ(waiting.error(), "");
  EXPECT_EQ(waiting.total_bytes(), 0u);
  EXPECT_FALSE(waiting.has_part());
  Train(shard_, 1);
  const v1::CheckpointReport report = Take("a", 3);
  EXPECT_EQ(report.part().position(), 3u);
  // Asked again after the next entry it still is of its own.
  Train(shard_, 2);
  EXPECT_EQ(Take("a", 3).part().position(), 3u);
}

TEST_F(CheckpointTakerTest, NamesAPositionThatIsGone) {
  Train(shard_, 1);
  const v1::CheckpointReport report = Take("a", 2);
  EXPECT_EQ(report.error_code(), static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(report.error(), "checkpoint of position 2 asked for, the shard is at position 3");
}

TEST_F(CheckpointTakerTest, AnotherIdEndsTheOneBefore) {
  Take("a", 3);
  const v1::CheckpointReport report = Take("b", 2);
  EXPECT_TRUE(report.has_part());
  EXPECT_EQ(report.id(), "b");
}

// What made one fail says nothing of the next, of the same name and entry.
TEST_F(CheckpointTakerTest, AnotherAttemptBeginsAnewAndLeavesNothingOfTheFirst) {
  files_.SetFreeBytes(100);
  EXPECT_EQ(Take("a", 2, 7).error_code(),
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(files_.List()->empty());
  files_.SetUnbounded();
  // Asked again it tells what came of it.
  EXPECT_EQ(Take("a", 2, 7).error_code(),
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  const v1::CheckpointReport report = Take("a", 2, 8);
  EXPECT_EQ(report.error(), "");
  EXPECT_EQ(report.attempt(), 8u);
  ASSERT_TRUE(report.has_part());
  EXPECT_EQ(report.part().files(0).name(),
            "a.0000000000000008.shard-00000-of-00001.0000.safetensors");
}

// The same name at another entry, while the first one's files are there still.
TEST_F(CheckpointTakerTest, AttemptsHaveFilesOfTheirOwn) {
  ASSERT_TRUE(Take("a", 2, 7).has_part());
  Train(shard_, 1);
  const v1::CheckpointReport report = Take("a", 3, 8);
  EXPECT_EQ(report.error(), "");
  EXPECT_EQ(report.part().position(), 3u);
  EXPECT_EQ(files_.List()->size(), 2u);
}

TEST_F(CheckpointTakerTest, HearsNothingOfTheWriterOfAnEarlierAttempt) {
  Take("a", 3, 7);
  Take("a", 3, 8);
  shard_.core().OnPartWritten("a", 7, absl::CancelledError("nobody waits"));
  shard_.core().OnPartWritten("a", 7, v1::CheckpointPart());
  EXPECT_FALSE(Take("a", 3, 8).has_part());
  EXPECT_EQ(Take("a", 3, 8).error(), "");
}

TEST_F(CheckpointTakerTest, SaysThatItHasNoDirectoryOrThatTheDiskIsFull) {
  shard_.SetCheckpoints(nullptr);
  EXPECT_EQ(Take("a", 2).error_code(),
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  shard_.SetCheckpoints(&files_);
  files_.SetFreeBytes(100);
  EXPECT_EQ(Take("b", 2).error_code(), static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  // Steps go on.
  Train(shard_, 1);
  EXPECT_EQ(shard_.state().applied_step(), 1u);
}

// P18 ends a process whose own disk fails. Nothing rests on a checkpoint that is being written, and
// its directory is another disk.
TEST_F(CheckpointTakerTest, AFailingDeviceFailsTheCheckpointAlone) {
  for (uint64_t operations = 0; operations < 4; ++operations) {
    files_.FailAfter(operations);
    const v1::CheckpointReport report = Take(absl::StrCat("bad-", operations), operations + 2);
    EXPECT_EQ(report.error_code(), static_cast<uint32_t>(absl::StatusCode::kDataLoss));
    EXPECT_NE(report.error().find("checkpoints"), std::string::npos) << report.error();
    EXPECT_FALSE(report.has_part());
    Train(shard_, operations + 1);
  }
  files_.SetHealthy();
  EXPECT_TRUE(Take("good", 6).has_part());
}

// Rule 1: "After promising b a shard sends no answer, PREPARE included, to a lower ballot."
TEST_F(CheckpointTakerTest, TellsNothingToAnOlderBallot) {
  Take("a", 3);
  shard_.Promise(2);
  const auto answers = shard_.Take("a", 3);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
}

}  // namespace
}  // namespace kaon::shard
