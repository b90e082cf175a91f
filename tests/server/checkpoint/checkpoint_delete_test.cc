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
  EXPECT_THAT(refused.message(), HasSubstr("is the newest good one of job"));
  EXPECT_TRUE(directory_.Verify("new").ok());
}

TEST_F(CheckpointDeleteTest, RefusesTheOneThatARestoreMayRead) {
  ASSERT_TRUE(MarkRestore(disk_, {"old", 2, {1, 9}}).ok());
  const absl::Status refused = directory_.Delete("old").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("was restored"));
  EXPECT_TRUE(directory_.Verify("old").ok());
}

TEST_F(CheckpointDeleteTest, RefusesABadId) {
  EXPECT_EQ(directory_.Delete("../x").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::checkpoint
