#include "server/coordinator/checkpoint/find_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/restore_marks.h"
#include "tests/server/checkpoint/damage.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

v1::RestoreCheckpointRequest Named(const std::string& id) {
  v1::RestoreCheckpointRequest request;
  request.set_id(id);
  return request;
}

// Writes a checkpoint whose manifest has the digests of its content.
v1::CheckpointManifest Write(simulation::SimulatedDirectory& files, const std::string& id,
                             uint64_t position) {
  checkpoint::CheckpointDirectory directory(files);
  auto manifest = checkpoint::WriteCheckpoint(directory, id, position).value();
  const checkpoint::ContentDigests digests = checkpoint::DigestsOf(directory, manifest).value();
  manifest.set_weights_digest(digests.weights);
  manifest.set_state_digest(digests.state);
  EXPECT_TRUE(files.Remove(checkpoint::CheckpointDirectory::ManifestName(id)).ok());
  EXPECT_TRUE(directory.Commit(manifest).ok());
  return manifest;
}

TEST(FindCheckpointTest, FindsTheOneThatIsNamedAndTheNewest) {
  simulation::SimulatedDirectory files("/checkpoints", 1);
  checkpoint::CheckpointDirectory directory(files);
  Write(files, "older", 10);
  Write(files, "newer", 12);
  const auto named = FindCheckpoint(directory, Named("older"));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->order.manifest->position(), 10u);
  EXPECT_EQ(named->order.manifest_sha256, directory.ManifestDigest("older").value());
  const auto newest = FindCheckpoint(directory, Named(""));
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->order.manifest->id(), "newer");
}

TEST(FindCheckpointTest, NamesWhatItPassesOverAndWhatThereIsNot) {
  simulation::SimulatedDirectory files("/checkpoints", 1);
  checkpoint::CheckpointDirectory directory(files);
  EXPECT_EQ(FindCheckpoint(directory, Named("absent")).status().code(),
            absl::StatusCode::kNotFound);
  Write(files, "older", 10);
  const std::string damaged = Write(files, "newer", 12).files(0).name();
  // Flips a bit in the tensors, which begin after the header's 4 KiB.
  ASSERT_TRUE(files.FlipBit(damaged, 4096 * 8 + 77).ok());
  const auto newest = FindCheckpoint(directory, Named(""));
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->order.manifest->id(), "older");
  ASSERT_EQ(newest->skipped.size(), 1u);
  EXPECT_THAT(newest->skipped[0].reason, HasSubstr(damaged));
}

// A damaged checkpoint is found neither by its name nor as the newest one.
TEST(FindCheckpointTest, TakesNothingThatIsDamagedInAnyWay) {
  for (const checkpoint::Damage damage : checkpoint::kEveryDamage) {
    for (const bool of_manifest : {false, true}) {
      simulation::SimulatedDirectory files("/checkpoints", 1);
      checkpoint::CheckpointDirectory directory(files);
      Write(files, "older", 10);
      const v1::CheckpointManifest manifest = Write(files, "newer", 12);
      const std::string name = of_manifest ? "newer.manifest" : manifest.files(1).name();
      SCOPED_TRACE(checkpoint::NameOf(damage) + " " + name);
      checkpoint::DamageFile(files, name, damage);
      const bool gone = of_manifest && damage == checkpoint::Damage::kMissing;
      const absl::Status named = FindCheckpoint(directory, Named("newer")).status();
      EXPECT_EQ(named.code(), gone ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(named.message()), HasSubstr(name));
      const auto newest = FindCheckpoint(directory, Named(""));
      ASSERT_TRUE(newest.ok()) << newest.status();
      EXPECT_EQ(newest->order.manifest->id(), "older");
      ASSERT_EQ(newest->skipped.size(), 1u);
      EXPECT_EQ(newest->skipped[0].id, "newer");
      if (!gone) {
        EXPECT_EQ(newest->skipped[0].reason, named.ToString());
      }
    }
  }
}

TEST(FindCheckpointTest, DoesNotTakeWhatIsBeingRemoved) {
  simulation::SimulatedDirectory files("/checkpoints", 1);
  checkpoint::CheckpointDirectory directory(files);
  Write(files, "older", 10);
  Write(files, "newer", 12);
  ASSERT_TRUE(checkpoint::MarkRemoval(files, "newer", {}).ok());
  const absl::Status named = FindCheckpoint(directory, Named("newer")).status();
  EXPECT_EQ(named.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(named.message()), HasSubstr("/checkpoints/newer.removing"));
  EXPECT_EQ(FindCheckpoint(directory, Named(""))->order.manifest->id(), "older");
}

// A coordinator died between the rename that makes a checkpoint exist and the sync of its name. The
// shards that load it now read it again when they restart.
TEST(FindCheckpointTest, WhatItFindsOutlivesAPowerCut) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    simulation::SimulatedDirectory files("/checkpoints", seed);
    checkpoint::CheckpointDirectory directory(files);
    Write(files, "kept", 10);
    const std::string name = checkpoint::CheckpointDirectory::ManifestName("kept");
    ASSERT_TRUE(files.Rename(name, "not-yet").ok());
    ASSERT_TRUE(files.Sync().ok());
    ASSERT_TRUE(files.Rename("not-yet", name).ok());
    ASSERT_TRUE(FindCheckpoint(directory, Named("kept")).ok());
    files.CutPower();
    checkpoint::CheckpointDirectory after(files);
    EXPECT_TRUE(after.Verify("kept").ok()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kaon::coordinator
