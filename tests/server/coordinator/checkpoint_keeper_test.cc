#include "server/coordinator/checkpoint_keeper.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/disk/posix_directory.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"

namespace kaon::coordinator {
namespace {

using Directory = absl::StatusOr<checkpoint::CheckpointDirectory*>;

std::string NewDirectory() {
  std::string path = testing::TempDir() + "/checkpoints.XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

TEST(CheckpointKeeperTest, GivesTheDirectoryToTheTasksInTheirOrder) {
  const auto keeper = CheckpointKeeper::Create(NewDirectory()).value();
  std::vector<int> ran;
  std::promise<void> done;
  keeper->Run([&](const Directory& directory) {
    EXPECT_TRUE((*directory)->List()->empty());
    ran.push_back(1);
  });
  keeper->Run([&](const Directory&) {
    ran.push_back(2);
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(CheckpointKeeperTest, SaysThatThereIsNoDirectory) {
  const auto keeper = CheckpointKeeper::Create("").value();
  absl::Status status;
  keeper->Run([&status](const Directory& directory) { status = directory.status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--checkpoint-dir"), absl::string_view::npos);
}

TEST(CheckpointKeeperTest, IsNotMadeOfADirectoryThatIsNotThere) {
  const std::string path = NewDirectory() + "/absent";
  const absl::Status status = CheckpointKeeper::Create(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
}

TEST(CheckpointKeeperTest, RefusesMoreThanMayWaitAndEndsThemAll) {
  const auto keeper = CheckpointKeeper::Create(NewDirectory()).value();
  std::promise<void> started;
  std::promise<void> blocked;
  keeper->Run([&](const Directory&) {
    started.set_value();
    blocked.get_future().wait();
  });
  started.get_future().wait();
  std::vector<absl::Status> ended(CheckpointKeeper::kMaxTasks + 1);
  for (absl::Status& status : ended) {
    keeper->Run([&status](const Directory& directory) { status = directory.status(); });
  }
  EXPECT_EQ(ended.back().code(), absl::StatusCode::kResourceExhausted);
  blocked.set_value();
  keeper->Stop();
  absl::Status late;
  keeper->Run([&late](const Directory& directory) { late = directory.status(); });
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
}

// A directory, what coordinators and shards put there, and the keeper of one coordinator.
class CheckpointKeeperFilesTest : public testing::Test {
 protected:
  // What two shards write.
  std::vector<v1::CheckpointPart> WriteParts(const std::string& id, uint64_t position,
                                             uint64_t attempt) {
    checkpoint::TinyShards shards;
    shards.attempt = attempt;
    std::vector<v1::CheckpointPart> parts;
    for (uint32_t shard : {0, 1}) {
      parts.push_back(checkpoint::WritePart(directory_, id, position, shard, shards).value());
    }
    return parts;
  }

  void Start() { keeper_ = CheckpointKeeper::Create(path_).value(); }

  absl::Status Finish(const std::string& id, uint64_t position, uint64_t attempt,
                      std::vector<v1::CheckpointPart> parts) {
    FinishCheckpoint finish;
    finish.facts = checkpoint::TinyFacts(id, position);
    finish.attempt = attempt;
    finish.parts = std::move(parts);
    absl::Status finished;
    keeper_->Finish(finish, 2, [&finished](const absl::StatusOr<v1::CheckpointSummary>& summary) {
      finished = summary.status();
    });
    // Behind all of it.
    std::promise<void> done;
    keeper_->Run([&done](const Directory&) { done.set_value(); });
    done.get_future().wait();
    return finished;
  }

  // Of checkpoint `id`, whether it is finished or not.
  size_t FilesOf(const std::string& id) {
    size_t files = 0;
    const std::vector<std::string> names = files_->List().value();
    for (const std::string& name : names) files += absl::StartsWith(name, id + ".") ? 1 : 0;
    return files;
  }

  const std::string path_ = NewDirectory();
  const std::unique_ptr<disk::PosixDirectory> files_ = disk::PosixDirectory::At(path_).value();
  checkpoint::CheckpointDirectory directory_{*files_};
  std::unique_ptr<CheckpointKeeper> keeper_;
};

// An attempt of another coordinator may be running while its files are seen for the first time; but
// not any more once all shards have written for this one since.
TEST_F(CheckpointKeeperFilesTest, RemovesWhatOthersLeftOnceItCannotBeRunning) {
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

TEST_F(CheckpointKeeperFilesTest, RemovesAnAttemptOfItsOwnThatIsGivenUpAndNoOther) {
  Start();
  WriteParts("mine", 10, 1);
  WriteParts("mine", 10, 2);
  ASSERT_EQ(Finish("mine", 10, 1, {}), absl::OkStatus());
  EXPECT_EQ(FilesOf("mine.0000000000000001"), 0u);
  EXPECT_EQ(FilesOf("mine.0000000000000002"), 2u);
  // Not after any number of them: no shard has written for this coordinator since.
  for (uint64_t attempt = 3; attempt < 6; ++attempt) Finish("mine", 10, attempt, {}).IgnoreError();
  EXPECT_EQ(FilesOf("mine.0000000000000002"), 2u);
}

// What fills the disk may be what a crash left: the first attempt fails for it, and it goes.
TEST_F(CheckpointKeeperFilesTest, WhatWasThereBeforeItStartedGoesWithItsFirstAttempt) {
  WriteParts("before", 10, 1);
  Start();
  ASSERT_EQ(Finish("mine", 11, 2, {}), absl::OkStatus());
  EXPECT_EQ(FilesOf("before"), 0u);
}

}  // namespace
}  // namespace kaon::coordinator
