// Tests which checkpoints CheckpointDirectory::Delete removes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/checkpoint/restore_marks.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CheckpointDeleteTest : public testing::Test {
 protected:
  CheckpointDeleteTest() {
    EXPECT_TRUE(WriteCheckpoint(directory_, "old", 7).ok());
    EXPECT_TRUE(WriteCheckpoint(directory_, "new", 9).ok());
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

TEST_F(CheckpointDeleteTest, RemovesTheCheckpointAndItsFilesAlone) {
  EXPECT_EQ(directory_.Delete("old")->position(), 7u);
  EXPECT_THAT(*disk_.List(), Each(Not(StartsWith("old"))));
  EXPECT_TRUE(directory_.Verify("new").ok());
  EXPECT_EQ(directory_.Delete("old").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointDeleteTest, RefusesTheNewestOfItsJob) {
  const absl::Status refused = directory_.Delete("new").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("has no newer one of job"));
  EXPECT_TRUE(directory_.Verify("new").ok());
}

TEST_F(CheckpointDeleteTest, RefusesTheOneThatARestoreMayRead) {
  // The log has reached 9: the restore may still be decided.
  ASSERT_TRUE(MarkRestore(disk_, {"old", 2, {1, 10}}).ok());
  const absl::Status refused = directory_.Delete("old").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("was restored"));
  EXPECT_TRUE(directory_.Verify("old").ok());
}

TEST_F(CheckpointDeleteTest, RemovesARestoredOneOnceTwoAreNewerThanTheRestore) {
  ASSERT_TRUE(MarkRestore(disk_, {"old", 2, {1, 10}}).ok());
  TinyShards restored;
  restored.timeline = 2;
  ASSERT_TRUE(WriteCheckpoint(directory_, "first", 11, restored).ok());
  EXPECT_FALSE(directory_.Delete("old").ok());
  ASSERT_TRUE(WriteCheckpoint(directory_, "second", 12, restored).ok());
  EXPECT_TRUE(directory_.Delete("old").ok());
}

TEST_F(CheckpointDeleteTest, ANewerOneThatIsBeingRemovedDoesNotCount) {
  ASSERT_TRUE(MarkRemoval(disk_, "new", {}).ok());
  EXPECT_THAT(directory_.Delete("old").status().message(), HasSubstr("has no newer one of job"));
  EXPECT_TRUE(directory_.Verify("old").ok());
}

TEST_F(CheckpointDeleteTest, FinishesARemovalThatACrashCutShort) {
  const v1::CheckpointManifest manifest = *directory_.Load("old");
  std::vector<std::string> files;
  for (const v1::CheckpointFile& file : manifest.files()) files.push_back(file.name());
  ASSERT_TRUE(MarkRemoval(disk_, "old", files).ok());
  ASSERT_TRUE(disk_.Remove("old.manifest").ok());
  EXPECT_EQ(directory_.Delete("old").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(*disk_.List(), Each(Not(StartsWith("old"))));
}

TEST_F(CheckpointDeleteTest, RefusesABadId) {
  EXPECT_EQ(directory_.Delete("../x").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::checkpoint
