#include "server/coordinator/checkpoint/checkpoint_keeper.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

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

TEST(CheckpointKeeperTest, FinishesOnItsThread) {
  const auto keeper = CheckpointKeeper::Create(NewDirectory()).value();
  FinishCheckpoint finish;
  finish.facts = checkpoint::TinyFacts("first", 10);
  // Of a shard that wrote nothing: the manifest would not be whole.
  finish.parts.emplace_back();
  std::promise<absl::Status> finished;
  keeper->Finish(finish, 2, [&finished](const absl::StatusOr<v1::CheckpointSummary>& summary) {
    finished.set_value(summary.status());
  });
  EXPECT_EQ(finished.get_future().get().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckpointKeeperTest, SaysThatThereIsNoDirectoryToFinishIn) {
  const auto keeper = CheckpointKeeper::Create("").value();
  FinishCheckpoint finish;
  finish.parts.emplace_back();
  absl::Status finished;
  keeper->Finish(finish, 2, [&finished](const absl::StatusOr<v1::CheckpointSummary>& summary) {
    finished = summary.status();
  });
  EXPECT_EQ(finished.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace kaon::coordinator
