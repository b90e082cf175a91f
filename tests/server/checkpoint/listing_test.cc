#include "server/checkpoint/listing.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/restore_marks.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class ListingTest : public testing::Test {
 protected:
  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

TEST_F(ListingTest, IsEmptyWhereNothingIs) {
  EXPECT_EQ(ListCheckpoints(directory_, "")->checkpoints_size(), 0);
}

TEST_F(ListingTest, NewestFirstWithWhatTheManifestSays) {
  for (const uint64_t position : {7, 12, 9}) {
    ASSERT_TRUE(WriteCheckpoint(directory_, absl::StrCat("c", position), position).ok());
  }
  const v1::ListCheckpointsResponse listed = ListCheckpoints(directory_, "tiny").value();
  ASSERT_EQ(listed.checkpoints_size(), 3);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().id(), "c12");
  EXPECT_EQ(listed.checkpoints(1).checkpoint().id(), "c9");
  EXPECT_EQ(listed.checkpoints(2).checkpoint().id(), "c7");
  const v1::CheckpointSummary& newest = listed.checkpoints(0).checkpoint();
  EXPECT_EQ(newest.job(), "tiny");
  EXPECT_EQ(newest.step(), 10u);
  EXPECT_EQ(newest.num_shards(), 2u);
  uint64_t bytes = 0;
  const v1::CheckpointManifest manifest = directory_.Load("c12").value();
  for (const v1::CheckpointFile& file : manifest.files()) bytes += file.size();
  EXPECT_EQ(newest.bytes(), bytes);
  EXPECT_EQ(listed.checkpoints(0).problem(), "");
}

TEST_F(ListingTest, LeavesOutOtherJobs) {
  ASSERT_TRUE(WriteCheckpoint(directory_, "a", 7).ok());
  EXPECT_EQ(ListCheckpoints(directory_, "other")->checkpoints_size(), 0);
}

TEST_F(ListingTest, SaysOfOneThatItIsBeingRemovedAndNothingOfMarksOfRestores) {
  ASSERT_TRUE(WriteCheckpoint(directory_, "a", 7).ok());
  ASSERT_TRUE(WriteCheckpoint(directory_, "b", 8).ok());
  ASSERT_TRUE(MarkRestore(disk_, {"a", 2, {1, 9}}).ok());
  ASSERT_TRUE(MarkRestore(disk_, {"gone", 2, {1, 9}}).ok());
  ASSERT_TRUE(MarkRemoval(disk_, "b", {}).ok());
  const v1::ListCheckpointsResponse listed = ListCheckpoints(directory_, "tiny").value();
  ASSERT_EQ(listed.checkpoints_size(), 2);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().id(), "a");
  EXPECT_EQ(listed.checkpoints(0).problem(), "");
  EXPECT_EQ(listed.checkpoints(1).checkpoint().id(), "b");
  EXPECT_NE(listed.checkpoints(1).problem().find("b.removing"), std::string::npos);
}

TEST_F(ListingTest, BadOnesComeLastAndSayWhy) {
  ASSERT_TRUE(WriteCheckpoint(directory_, "old", 7).ok());
  const v1::CheckpointManifest shorter = WriteCheckpoint(directory_, "shorter", 9).value();
  ASSERT_TRUE(WriteCheckpoint(directory_, "flipped", 8).ok());
  ASSERT_TRUE(disk_.Open(shorter.files(1).name()).value()->Truncate(5000).ok());
  ASSERT_TRUE(disk_.FlipBit("flipped.manifest", 999).ok());
  const v1::ListCheckpointsResponse listed = ListCheckpoints(directory_, "tiny").value();
  ASSERT_EQ(listed.checkpoints_size(), 3);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().id(), "old");
  EXPECT_EQ(listed.checkpoints(1).checkpoint().id(), "flipped");
  EXPECT_NE(listed.checkpoints(1).problem().find("flipped.manifest"), std::string::npos);
  EXPECT_EQ(listed.checkpoints(2).checkpoint().id(), "shorter");
  EXPECT_NE(listed.checkpoints(2).problem().find(shorter.files(1).name()), std::string::npos);
}

// The listing does not show an attempt with a number, because its own coordinator removes it.
TEST_F(ListingTest, NamesWhatAKilledImportHasLeft) {
  const v1::CheckpointPart left = WritePart(directory_, "half", 9, 0, {}).value();
  ASSERT_TRUE(disk_.Create("going.0123456789abcdef.shard-00000-of-00002.0000.safetensors").ok());
  const v1::ListCheckpointsResponse listed = ListCheckpoints(directory_, "tiny").value();
  ASSERT_EQ(listed.checkpoints_size(), 1);
  EXPECT_EQ(listed.checkpoints(0).checkpoint().id(), "half");
  EXPECT_NE(listed.checkpoints(0).problem().find(left.files(0).name()), std::string::npos)
      << listed.checkpoints(0).problem();
}

}  // namespace
}  // namespace kaon::checkpoint
