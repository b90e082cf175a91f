#include "server/shard/restore_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/checkpoint/restore_marks.h"
#include "tests/server/checkpoint/damage.h"
#include "tests/server/checkpoint/stepped_directory.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/shard_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

using ::testing::HasSubstr;

using Gradients = std::vector<std::vector<float>>;

Gradients GradientOf(uint64_t step) {
  const auto x = static_cast<float>(step);
  return {{0.5f, -x, 2, 0.25f * x, -0.5f, 1}, {x, -2, 3, -4}};
}

// One that went on after a checkpoint of step 3.
class RestoreCheckTest : public testing::Test {
 protected:
  RestoreCheckTest() {
    shard_.SetCheckpoints(&files_);
    shard_.Load();
    for (uint64_t step = 1; step <= 3; ++step) shard_.Train(step, GradientOf(step));
    restore_ = WriteShardCheckpoint(shard_, files_, "three");
    digests_ = Digests(shard_);
    for (uint64_t step = 4; step <= 5; ++step) shard_.Train(step, GradientOf(step));
  }

  static StateDigests Digests(DrivenShard& shard) { return shard.core().parameters()->Digests(); }

  // Votes and applies; what the shard answered to the plan.
  static std::vector<v1::ShardToCoordinator> Take(DrivenShard& shard, const v1::StepPlan& plan) {
    std::vector<v1::ShardToCoordinator> answers = shard.Plan(plan);
    v1::StepRecord record;
    *record.mutable_plan() = plan;
    *record.mutable_decision() = plan.restore().last_decision();
    shard.Decide(record);
    return answers;
  }

  simulation::SimulatedDirectory files_{"checkpoints", 1};
  DrivenShard shard_;
  v1::RestoreBody restore_;
  StateDigests digests_;
};

TEST_F(RestoreCheckTest, TheStateIsThatOfTheCheckpointAsANewTimeline) {
  const StateDigests at_five = Digests(shard_);
  ASSERT_NE(at_five.weights, digests_.weights);
  const auto answers = Take(shard_, RestorePlan(shard_, restore_, 2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].has_prepared()) << answers[0].DebugString();
  EXPECT_EQ(Digests(shard_).weights, digests_.weights);
  EXPECT_EQ(Digests(shard_).state, digests_.state);
  EXPECT_EQ(shard_.state().timeline(), 2u);
  EXPECT_EQ(shard_.state().applied_step(), 3u);
  EXPECT_EQ(shard_.state().config_revision(), shard_.state().applied_position());
  EXPECT_TRUE(shard_.state().weights_loaded());
  // And on to the same bits.
  for (uint64_t step = 4; step <= 5; ++step) shard_.Train(step, GradientOf(step));
  EXPECT_EQ(Digests(shard_).weights, at_five.weights);
  EXPECT_EQ(Digests(shard_).state, at_five.state);
}

TEST_F(RestoreCheckTest, KeepsTheSamplesOfStepsThatLedToTheCheckpoint) {
  v1::ShardParameterRequest w;
  w.set_parameter_id(0);
  const auto sample_all = [this] {
    while (shard_.core().Sample()) {
    }
  };
  sample_all();
  // Parameters on a disk are not sampled.
  ASSERT_EQ(shard_.core().History(w)->samples_size(), ShardMemory::is_nvme() ? 0 : 1);
  if (ShardMemory::is_nvme()) return;
  EXPECT_EQ(shard_.core().History(w)->samples(0).step(), 5u);
  const v1::RestoreBody five = WriteShardCheckpoint(shard_, files_, "five");
  for (uint64_t step = 6; step <= 15; ++step) shard_.Train(step, GradientOf(step));
  sample_all();
  ASSERT_EQ(shard_.core().History(w)->samples_size(), 2);
  Take(shard_, RestorePlan(shard_, five, 2));
  ASSERT_EQ(shard_.core().History(w)->samples_size(), 1);
  EXPECT_EQ(shard_.core().History(w)->samples(0).step(), 5u);
  Take(shard_, RestorePlan(shard_, restore_, 3));
  EXPECT_EQ(shard_.core().History(w)->samples_size(), 0);
}

TEST_F(RestoreCheckTest, TheOldTimelineIsRefused) {
  const std::vector<float> at_three = shard_.Read(2, 5);
  Take(shard_, RestorePlan(shard_, restore_, 2));
  v1::PullRequest pull;
  pull.set_job("gpt2");
  pull.set_timeline(1);
  pull.set_step(3);
  pull.add_parameter_ids(0);
  pull.set_dtype(v1::DTYPE_FLOAT32);
  EXPECT_EQ(shard_.core().publisher().CheckPull(pull).message(), "timeline 1 pulled, expecting 2");
  pull.set_timeline(2);
  EXPECT_TRUE(shard_.core().publisher().CheckPull(pull).ok());
  pull.set_step(5);
  EXPECT_EQ(shard_.core().publisher().CheckPull(pull).code(), absl::StatusCode::kUnavailable);
  // A push of timeline 1.
  const absl::Status pushed = shard_.Push(0, 4, GradientOf(4));
  EXPECT_EQ(pushed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(pushed.message().find("timeline 1"), absl::string_view::npos) << pushed;
  // Frozen parameters too have their one buffer back.
  EXPECT_EQ(shard_.Read(2, 3), at_three);
}

TEST_F(RestoreCheckTest, StartsTheJobOnAnEmptyShard) {
  DrivenShard fresh;
  fresh.SetCheckpoints(&files_);
  fresh.Promise(1);
  const auto answers = Take(fresh, RestorePlan(fresh, restore_, 2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].has_prepared()) << answers[0].DebugString();
  EXPECT_EQ(Digests(fresh).state, digests_.state);
  EXPECT_EQ(fresh.Read(0, 3).size(), 6u);
  fresh.Train(4, GradientOf(4));
  EXPECT_EQ(fresh.state().applied_step(), 4u);
}

// So that no retention removes it, whoever runs one.
TEST_F(RestoreCheckTest, AVoteLeavesADurableMark) {
  ASSERT_TRUE(shard_.Plan(RestorePlan(shard_, restore_, 2))[0].has_prepared());
  const uint64_t position = shard_.state().applied_position() + 1;
  EXPECT_TRUE(
      files_.DurableCopy()->Open(absl::StrFormat("three.restore-2.at-1-%d", position)).ok());
}

TEST_F(RestoreCheckTest, WhatIsBeingRemovedIsRefusedByNameAndTheJobGoesOn) {
  ASSERT_TRUE(checkpoint::MarkRemoval(files_, "three", {}).ok());
  const auto answers = shard_.Plan(RestorePlan(shard_, restore_, 2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_THAT(answers[0].refused().detail(), HasSubstr("checkpoint three is being removed"));
  EXPECT_THAT(answers[0].refused().detail(), HasSubstr("checkpoints/three.removing"));
  shard_.Train(6, GradientOf(6));
  EXPECT_EQ(shard_.state().applied_step(), 6u);
}

TEST_F(RestoreCheckTest, WhatCannotBeMarkedIsRefusedByName) {
  checkpoint::SteppedDirectory read_only(
      files_, [](uint64_t) { return absl::FailedPreconditionError("Read-only file system"); });
  shard_.SetCheckpoints(&read_only);
  const auto answers = shard_.Plan(RestorePlan(shard_, restore_, 2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(answers[0].refused().detail(),
            "checkpoint three cannot be restored, as its restore cannot be marked in checkpoints: "
            "Read-only file system");
}

TEST_F(RestoreCheckTest, IsRefusedWithEveryDamageAndNothingChanges) {
  const v1::StepPlan plan = RestorePlan(shard_, restore_, 2);
  const StateDigests before = Digests(shard_);
  const auto refused = [&](const v1::StepPlan& changed) {
    const auto answers = shard_.Plan(changed);
    EXPECT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_INVALID)
        << answers[0].DebugString();
    EXPECT_EQ(Digests(shard_).state, before.state);
    return answers[0].refused().detail();
  };
  v1::StepPlan other = plan;
  other.mutable_restore()->set_checkpoint("absent");
  EXPECT_NE(refused(other).find("absent.manifest"), std::string::npos);
  other = plan;
  other.set_round(2);
  other.mutable_restore()->mutable_manifest_sha256()->at(0) ^= 1;
  EXPECT_NE(refused(other).find("SHA-256"), std::string::npos);
  other = plan;
  other.set_round(3);
  other.mutable_restore()->set_step(4);
  EXPECT_NE(refused(other).find("another step"), std::string::npos);
  other = plan;
  other.set_round(4);
  other.mutable_restore()->mutable_registration()->mutable_definition()->set_world_size(1);
  EXPECT_NE(refused(other).find("world_size"), std::string::npos);
  const std::string file = checkpoint::CheckpointDirectory(files_).Load("three")->files(0).name();
  std::map<std::string, std::string> good = checkpoint::FilesOf(files_);
  other = plan;
  uint64_t round = 4;
  for (const std::string& name : {file, std::string("three.manifest")}) {
    for (const checkpoint::Damage damage : checkpoint::kEveryDamage) {
      SCOPED_TRACE(checkpoint::NameOf(damage) + " " + name);
      checkpoint::DamageFile(files_, name, damage);
      other.set_round(++round);
      EXPECT_THAT(refused(other), HasSubstr(name));
      checkpoint::PutFile(files_, name, good[name]);
    }
  }
  // The job goes on as if it had not been asked.
  shard_.Train(6, GradientOf(6));
  EXPECT_EQ(shard_.state().applied_step(), 6u);
}

TEST_F(RestoreCheckTest, AnOlderTimelineIsStale) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  const auto answers = shard_.Plan(RestorePlan(shard_, restore_, 2));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_STALE_PLAN);
  EXPECT_EQ(answers[0].refused().detail(), "timeline 2 planned by a restore, expecting above 2");
}

// P6, P7: killed after any entry, the shard stands where it stood.
TEST_F(RestoreCheckTest, IsReplayedFromTheJournal) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  shard_.Train(4, GradientOf(4));
  const std::vector<journal::Entry> entries = shard_.journal().entries();
  for (size_t kept = 0; kept <= entries.size(); ++kept) {
    DrivenShard replayed;
    replayed.SetCheckpoints(&files_);
    for (size_t i = 0; i < kept; ++i) {
      const absl::Status status = replayed.core().Replay(entries[i]);
      ASSERT_TRUE(status.ok()) << i << " " << status;
    }
    replayed.core().FinishReplay();
    if (kept < entries.size()) continue;
    EXPECT_EQ(replayed.state().SerializeAsString(), shard_.state().SerializeAsString());
    EXPECT_EQ(Digests(replayed).state, Digests(shard_).state);
    EXPECT_EQ(replayed.Read(1, 4), shard_.Read(1, 4));
  }
}

// P7: whichever shard took something else than the checkpoint has, the sum that the next decision
// carries tells all of them.
TEST_F(RestoreCheckTest, ASumThatIsNotTheCheckpointsIsDataLoss) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  v1::StepRecord record = shard_.Decided(4, GradientOf(4));
  const uint64_t good = record.decision().state_digest();
  record.mutable_decision()->set_state_digest(good + 1);
  const auto answers = shard_.Decide(record);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_DATA_LOSS);
  EXPECT_TRUE(answers[0].refused().decision());
  EXPECT_EQ(answers[0].refused().detail(),
            absl::StrFormat("what the shards took from checkpoint three has state digest %016x, "
                            "its manifest has %016x; to go on, start this shard on an empty data "
                            "directory and run: kaonctl checkpoint restore",
                            good + 1, good));
  // It never votes again, and says why.
  EXPECT_EQ(shard_.state().data_loss(), answers[0].refused().detail());
  EXPECT_EQ(shard_.state().applied_step(), 3u);
  EXPECT_EQ(shard_.core().publisher().CheckPull(v1::PullRequest()).code(),
            absl::StatusCode::kDataLoss);
  record.mutable_decision()->set_state_digest(good);
  EXPECT_EQ(shard_.Decide(record)[0].refused().reason(), v1::REFUSAL_REASON_DATA_LOSS);
  // Told once: its owner takes calls no more.
  EXPECT_EQ(shard_.losses(), std::vector<std::string>{answers[0].refused().detail()});
}

TEST_F(RestoreCheckTest, OnlyTheDecisionRightAfterItTells) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  shard_.Train(4, GradientOf(4));
  v1::StepRecord record = shard_.Decided(5, GradientOf(5));
  record.mutable_decision()->set_state_digest(1);
  shard_.Decide(record);
  EXPECT_EQ(shard_.state().applied_step(), 5u);
  // And one that takes the state back again, right after it, does not go on from it.
  Take(shard_, RestorePlan(shard_, restore_, 3));
  Take(shard_, RestorePlan(shard_, restore_, 4));
  EXPECT_EQ(shard_.state().timeline(), 4u);
}

TEST_F(RestoreCheckTest, AJournalWhoseCheckpointIsGoneIsLost) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  ASSERT_TRUE(files_.Remove("three.manifest").ok());
  DrivenShard replayed;
  replayed.SetCheckpoints(&files_);
  absl::Status status;
  for (const journal::Entry& entry : shard_.journal().entries()) {
    status = replayed.core().Replay(entry);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("three.manifest"), absl::string_view::npos) << status;
}

// It may be mounted a moment later: whoever starts the shard tries again.
TEST_F(RestoreCheckTest, AMissingCheckpointDirectoryIsNoLoss) {
  Take(shard_, RestorePlan(shard_, restore_, 2));
  DrivenShard replayed;
  absl::Status status;
  for (const journal::Entry& entry : shard_.journal().entries()) {
    status = replayed.core().Replay(entry);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace kaon::shard
