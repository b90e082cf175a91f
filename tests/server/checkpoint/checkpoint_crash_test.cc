// A crash or a power cut at any disk operation, while a checkpoint is written or removed, leaves a
// whole checkpoint (P9, T5). It is the previous one or the new one.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

constexpr TinyShards kShards = {2, 1 << 20, 4, 1};
// Another attempt at the same.
constexpr TinyShards kAgain = {2, 1 << 20, 4, 2};
constexpr uint64_t kSeeds = 8;

// Crashes the process, or cuts the power with the luck of the seed.
void Stop(simulation::SimulatedDirectory& disk, uint64_t seed) {
  disk.SetHealthy();
  if (seed % 4 == 0) {
    disk.Crash();
  } else {
    disk.CutPower();
  }
}

void ExpectContents(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointTensor& tensor : manifest.tensors()) {
    const auto file = directory.Open(manifest.files(static_cast<int>(tensor.file())));
    ASSERT_TRUE(file.ok()) << file.status();
    const std::string expected =
        TinyBytes(manifest.position(), tensor.parameter_id(), tensor.role(), tensor.dtype(),
                  tensor.first_element(), tensor.num_elements());
    std::string read(expected.size(), '\0');
    ASSERT_TRUE((*file)->Read(tensor.offset(), read.size(), read.data()).ok());
    ASSERT_EQ(read, expected);
  }
}

TEST(CheckpointCrashTest, TheOldOrTheNewCheckpointIsNewestNeverATornOne) {
  uint64_t cuts = 0;
  uint64_t found_new = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    bool finished = false;
    for (uint64_t operations = 0; !finished; ++operations) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", stopped after ", operations, " operations"));
      simulation::SimulatedDirectory disk("disk", seed * 1000 + operations);
      CheckpointDirectory directory(disk);
      ASSERT_TRUE(WriteCheckpoint(directory, "old", 10, kShards).ok());
      disk.FailAfter(operations);
      finished = WriteCheckpoint(directory, "new", 11, kShards).ok();
      Stop(disk, seed);
      ++cuts;
      const absl::StatusOr<FoundCheckpoint> found = directory.FindNewest("tiny");
      ASSERT_TRUE(found.ok() && found->newest.has_value()) << found.status();
      // A commit that was reported is never lost.
      const bool is_new = found->newest->id() == "new";
      ASSERT_TRUE(is_new || !finished);
      found_new += is_new ? 1 : 0;
      ASSERT_EQ(found->newest->position(), is_new ? 11u : 10u);
      ExpectContents(directory, *found->newest);
      // The rest does not block another attempt, and GiveUp removes it.
      if (is_new) continue;
      if (directory.Load("new").status().code() == absl::StatusCode::kNotFound) {
        ASSERT_TRUE(WriteCheckpoint(directory, "new", 11, kAgain).ok());
        ASSERT_TRUE(directory.GiveUp({"new", 1}).ok());
        ASSERT_TRUE(directory.Verify("new").ok());
        ASSERT_TRUE(directory.Unfinished()->empty());
      }
    }
  }
  EXPECT_GT(cuts, kSeeds * 30);
  EXPECT_GE(found_new, kSeeds);
}

TEST(CheckpointCrashTest, RetentionLeavesTheKeptOnesWholeAndNoManifestWithoutItsFiles) {
  for (uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    bool finished = false;
    for (uint64_t operations = 0; !finished; ++operations) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", stopped after ", operations, " operations"));
      simulation::SimulatedDirectory disk("disk", seed * 1000 + operations);
      CheckpointDirectory directory(disk);
      const std::vector<std::string> ids = {"a", "b", "c", "d"};
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_TRUE(WriteCheckpoint(directory, ids[i], 10 + i, kShards).ok());
      }
      disk.FailAfter(operations);
      finished = directory.Retain("tiny", CheckpointDirectory::kMinKept).ok();
      Stop(disk, seed);
      const std::vector<std::string> left = *directory.List();
      ASSERT_GE(left.size(), CheckpointDirectory::kMinKept);
      for (const std::string& id : left) ASSERT_TRUE(directory.Verify(id).ok()) << id;
      EXPECT_EQ(left[left.size() - 1], "d");
      EXPECT_EQ(left[left.size() - 2], "c");
    }
  }
}

TEST(CheckpointCrashTest, AFullDiskLeavesTheCheckpointBefore) {
  for (uint64_t free_bytes = 0; free_bytes < 24000; free_bytes += 997) {
    SCOPED_TRACE(free_bytes);
    simulation::SimulatedDirectory disk("disk", free_bytes);
    CheckpointDirectory directory(disk);
    ASSERT_TRUE(WriteCheckpoint(directory, "old", 10, kShards).ok());
    disk.SetFreeBytes(free_bytes);
    const absl::Status status = WriteCheckpoint(directory, "new", 11, kShards).status();
    disk.SetUnbounded();
    const FoundCheckpoint found = *directory.FindNewest("tiny");
    ASSERT_TRUE(found.newest.has_value());
    EXPECT_EQ(found.newest->id(), status.ok() ? "new" : "old");
    if (status.ok()) break;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ASSERT_TRUE(directory.RemoveAttempt({"new", 1}).ok());
    EXPECT_TRUE(directory.Unfinished()->empty());
    EXPECT_TRUE(WriteCheckpoint(directory, "new", 11, kAgain).ok());
  }
}

}  // namespace
}  // namespace kaon::checkpoint
