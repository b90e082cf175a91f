#include "server/coordinator/checkpoint/checkpoint_finisher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/checkpoint/attempt_number.h"
#include "server/checkpoint/restore_marks.h"
#include "tests/server/checkpoint/damage.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::coordinator {
namespace {

// A directory, the files that coordinators and shards put there, and the finisher of one
// coordinator.
class CheckpointFinisherTest : public testing::Test {
 protected:
  // Writes the parts of two shards.
  std::vector<v1::CheckpointPart> WriteParts(const std::string& id, uint64_t position,
                                             uint64_t attempt) {
    checkpoint::TinyShards shards;
    shards.attempt = checkpoint::AttemptNumber(job_, attempt);
    std::vector<v1::CheckpointPart> parts;
    for (uint32_t shard : {0, 1}) {
      parts.push_back(checkpoint::WritePart(directory_, id, position, shard, shards).value());
    }
    return parts;
  }

  void Start() { finisher_.emplace(directory_); }

  absl::Status Finish(const std::string& id, uint64_t position, uint64_t attempt,
                      std::vector<v1::CheckpointPart> parts) {
    FinishCheckpoint finish;
    finish.facts = checkpoint::TinyFacts(id, position);
    finish.attempt = checkpoint::AttemptNumber(job_, attempt);
    finish.parts = std::move(parts);
    finish.retain = retain_;
    absl::Status finished;
    finisher_->Finish(finish, 2, [&finished](const absl::StatusOr<v1::CheckpointSummary>& summary) {
      finished = summary.status();
    });
    return finished;
  }

  // True if older checkpoints are removed from now on.
  bool retain_ = false;

  // Job of everything that follows.
  std::string job_ = "tiny";

  // Returns the number of files of checkpoint `id`, finished or not.
  size_t FilesOf(const std::string& id) {
    size_t files = 0;
    const std::vector<std::string> names = files_.List().value();
    for (const std::string& name : names) files += absl::StartsWith(name, id + ".") ? 1 : 0;
    return files;
  }

  simulation::SimulatedDirectory files_{"/checkpoints", 1};
  checkpoint::CheckpointDirectory directory_{files_};
  std::optional<CheckpointFinisher> finisher_;
};

// An attempt of another coordinator may be running while its files are seen for the first time. It
// cannot be running once all shards have written for this coordinator since.
TEST_F(CheckpointFinisherTest, RemovesWhatOthersLeftOnceItCannotBeRunning) {
  WriteParts("before", 10, 1);
  Start();
  WriteParts("meanwhile", 11, 2);
  ASSERT_EQ(Finish("first", 12, 3, WriteParts("first", 12, 3)), absl::OkStatus());
  EXPECT_EQ(FilesOf("before"), 0u);
  EXPECT_EQ(FilesOf("meanwhile"), 2u);
  WriteParts("later", 13, 4);
  ASSERT_EQ(Finish("second", 14, 5, WriteParts("second", 14, 5)), absl::OkStatus());
  EXPECT_EQ(FilesOf("meanwhile"), 0u);
  EXPECT_EQ(FilesOf("later"), 2u);
  EXPECT_TRUE(directory_.Verify("first").ok());
  EXPECT_TRUE(directory_.Verify("second").ok());
}

TEST_F(CheckpointFinisherTest, RemovesAnAttemptOfItsOwnThatIsGivenUpAndNoOther) {
  Start();
  WriteParts("mine", 10, 1);
  WriteParts("mine", 10, 2);
  ASSERT_EQ(Finish("mine", 10, 1, {}), absl::OkStatus());
  EXPECT_EQ(FilesOf("mine"), 2u);
  // Any number of own attempts does not remove it, because no shard has written for this
  // coordinator since.
  for (uint64_t attempt = 3; attempt < 6; ++attempt) Finish("mine", 10, attempt, {}).IgnoreError();
  EXPECT_EQ(FilesOf("mine"), 2u);
}

// The remains of a crash may fill the disk: the first attempt fails because of them, and removes
// them.
TEST_F(CheckpointFinisherTest, WhatWasThereBeforeItStartedGoesWithItsFirstAttempt) {
  WriteParts("before", 10, 1);
  Start();
  ASSERT_EQ(Finish("mine", 11, 2, {}), absl::OkStatus());
  EXPECT_EQ(FilesOf("before"), 0u);
}

// Retention does not remove it as one too many. Its files are not those of an unfinished attempt,
// which they would be if no manifest named them. A checkpoint without its manifest is no
// checkpoint, so it is not here.
TEST_F(CheckpointFinisherTest, NeverRemovesAnythingOfADamagedCheckpoint) {
  uint64_t attempt = 0;
  for (const checkpoint::Damage damage : checkpoint::kEveryDamage) {
    for (const bool of_manifest : {false, true}) {
      if (of_manifest && damage == checkpoint::Damage::kMissing) continue;
      checkpoint::TinyShards shards;
      shards.attempt = checkpoint::AttemptNumber(job_, ++attempt);
      const std::string id = absl::StrCat("damaged-", attempt);
      const v1::CheckpointManifest manifest =
          checkpoint::WriteCheckpoint(directory_, id, 10 + attempt, shards).value();
      checkpoint::DamageFile(files_, of_manifest ? id + ".manifest" : manifest.files(1).name(),
                             damage);
    }
  }
  const std::map<std::string, std::string> damaged = checkpoint::FilesOf(files_);
  const auto expect_left = [&] {
    const std::map<std::string, std::string> now = checkpoint::FilesOf(files_);
    EXPECT_TRUE(std::includes(now.begin(), now.end(), damaged.begin(), damaged.end()));
  };
  WriteParts("before", 10, 100);
  Start();
  retain_ = true;
  ASSERT_EQ(Finish("mine", 10, 101, {}), absl::OkStatus());
  EXPECT_EQ(FilesOf("before"), 0u);
  expect_left();
  WriteParts("later", 10, 102);
  for (const uint64_t position : {30, 31, 32}) {
    const std::string id = absl::StrCat("good-", position);
    ASSERT_EQ(Finish(id, position, position, WriteParts(id, position, position)), absl::OkStatus());
    expect_left();
  }
  EXPECT_EQ(FilesOf("later"), 0u);
  EXPECT_EQ(FilesOf("good-30"), 0u);
}

// It goes by its own log: one that slept does not know of the entry that a mark is of.
TEST_F(CheckpointFinisherTest, LeavesWhatAShardHasMarkedUntilItsOwnLogHasPassedTheMark) {
  Start();
  for (uint64_t position : {10, 11, 12}) {
    const std::string id = absl::StrCat("at-", position);
    ASSERT_EQ(Finish(id, position, position, WriteParts(id, position, position)), absl::OkStatus());
  }
  ASSERT_TRUE(checkpoint::MarkRestore(files_, {"at-10", 2, {1, 14}}).ok());
  retain_ = true;
  ASSERT_EQ(Finish("at-13", 13, 13, WriteParts("at-13", 13, 13)), absl::OkStatus());
  EXPECT_EQ(FilesOf("at-11"), 0u);
  EXPECT_TRUE(directory_.Verify("at-10").ok());
  ASSERT_EQ(Finish("at-15", 15, 15, WriteParts("at-15", 15, 15)), absl::OkStatus());
  EXPECT_EQ(FilesOf("at-10"), 0u);
  EXPECT_TRUE(directory_.Verify("at-15").ok());
}

// Another cluster may be writing it now, under ballots that these shards know nothing of.
TEST_F(CheckpointFinisherTest, AnAttemptOfAnotherJobIsLeftAlone) {
  job_ = "other";
  WriteParts("theirs", 10, 1);
  job_ = "tiny";
  Start();
  ASSERT_EQ(Finish("mine", 11, 2, {}), absl::OkStatus());
  for (uint64_t attempt = 3; attempt < 5; ++attempt) {
    const std::string id = "mine-" + std::to_string(attempt);
    ASSERT_EQ(Finish(id, 10 + attempt, attempt, WriteParts(id, 10 + attempt, attempt)),
              absl::OkStatus());
  }
  EXPECT_EQ(FilesOf("theirs"), 2u);
}

}  // namespace
}  // namespace kaon::coordinator
