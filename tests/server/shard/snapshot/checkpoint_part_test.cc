#include "server/shard/snapshot/checkpoint_part.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/written_by.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/shard_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

class CheckpointPartTest : public testing::Test {
 protected:
  CheckpointPartTest() {
    shard_.Load();
    shard_.Train(1, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
  }

  simulation::SimulatedDirectory files_{"checkpoints", 1};
  DrivenShard shard_;
};

TEST_F(CheckpointPartTest, IsThePartOfAGoodCheckpointThatSaysWhoWroteIt) {
  const v1::DescribeShardResponse facts = shard_.core().Describe("").value();
  WriteShardCheckpoint(shard_, files_, "one");
  checkpoint::CheckpointDirectory directory(files_);
  const absl::StatusOr<v1::CheckpointManifest> manifest = directory.Verify("one");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step(), 1u);
  EXPECT_EQ(manifest->position(), 3u);
  EXPECT_EQ(manifest->weights_digest(), facts.weights_digest());
  EXPECT_EQ(manifest->state_digest(), facts.state_digest());
  EXPECT_EQ(checkpoint::CheckDigests(directory, *manifest), absl::OkStatus());
  EXPECT_EQ(manifest->parameters(0).updates_applied(), 1u);
  EXPECT_EQ(manifest->files(0).backend(), "reference");
  EXPECT_FALSE(manifest->files(0).device_class().empty());
}

TEST_F(CheckpointPartTest, IsOfTheFrozenStateWhateverIsAppliedMeanwhile) {
  const v1::DescribeShardResponse facts = shard_.core().Describe("").value();
  const std::unique_ptr<StateFreeze> freeze = shard_.core().Freeze().value();
  shard_.Train(2, {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1}});
  const absl::StatusOr<v1::CheckpointPart> part = WriteCheckpointPart(
      *freeze, files_, {"one", 1, checkpoint::WrittenBy("reference", "Xeon"), nullptr});
  ASSERT_TRUE(part.ok()) << part.status();
  const v1::ShardState& state = freeze->facts().state;
  const checkpoint::CheckpointFacts about = {"one", state.registration(), state.applied_record(),
                                             state.applied_step()};
  checkpoint::CheckpointDirectory directory(files_);
  ASSERT_TRUE(directory.Commit(checkpoint::BuildManifest(about, {*part}).value()).ok());
  // The loaded state has the digest of the frozen one.
  DrivenShard loaded;
  loaded.SetCheckpoints(&files_);
  loaded.Promise(1);
  v1::RestoreBody restore;
  *restore.mutable_registration() = state.registration();
  restore.set_checkpoint("one");
  restore.set_manifest_sha256(directory.ManifestDigest("one").value());
  restore.set_step(1);
  *restore.mutable_last_decision() = state.applied_record().decision();
  const v1::StepPlan plan = RestorePlan(loaded, restore, 2);
  loaded.Plan(plan);
  v1::StepRecord record;
  *record.mutable_plan() = plan;
  *record.mutable_decision() = restore.last_decision();
  loaded.Decide(record);
  EXPECT_EQ(loaded.core().Describe("")->weights_digest(), facts.weights_digest());
}

TEST_F(CheckpointPartTest, ReportsHowFarItIsAndEndsWhenItIsTold) {
  std::unique_ptr<StateFreeze> freeze = shard_.core().Freeze().value();
  std::vector<uint64_t> written;
  PartOptions options = {"one", 1, checkpoint::WrittenBy("reference", "Xeon"),
                         [&written](uint64_t bytes) {
                           written.push_back(bytes);
                           return absl::OkStatus();
                         }};
  ASSERT_TRUE(WriteCheckpointPart(*freeze, files_, options).ok());
  ASSERT_EQ(written.size(), freeze->tensors().size());
  EXPECT_EQ(written.back(), freeze->num_bytes());
  freeze = shard_.core().Freeze().value();
  options.attempt = 2;
  const std::vector<std::string> before = *files_.List();
  options.progress = [](uint64_t) { return absl::CancelledError("another one is asked for"); };
  EXPECT_EQ(WriteCheckpointPart(*freeze, files_, options).status().message(),
            "another one is asked for");
  // Only its own files are gone.
  EXPECT_EQ(*files_.List(), before);
}

}  // namespace
}  // namespace kaon::shard
