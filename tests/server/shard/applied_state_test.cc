#include "server/shard/applied_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "proto/decide_version.h"
#include "server/shard/snapshot/snapshot_points.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

using Gradients = std::vector<std::vector<float>>;

Gradients GradientOf(uint64_t step) {
  const auto x = static_cast<float>(step);
  return {{0.5f, -x, 2, 0.25f * x, -0.5f, 1}, {x, -2, 3, -4}};
}

StateDigests Digests(DrivenShard& shard) { return shard.core().parameters()->Digests(); }

std::unique_ptr<DrivenShard> Make(SnapshotDirectory& snapshots) {
  auto shard = std::make_unique<DrivenShard>(1 << 16, "", 4);
  shard->SetSnapshots(&snapshots);
  return shard;
}

// A shard in mode interval(4) at step 5, whose snapshots are those of steps 2 and 4.
class RollbackTest : public testing::Test {
 protected:
  RollbackTest() {
    shard_->Load();
    for (uint64_t step = 1; step <= 5; ++step) {
      shard_->Train(step, GradientOf(step));
      if (step % 2 != 0) continue;
      EXPECT_TRUE(WriteSnapshot(*shard_, directory_).ok());
      points_.push_back(PointOf(shard_->state()));
      shard_->core().OnSnapshot(points_.back(), 1);
      if (step == 2) two_ = Digests(*shard_);
    }
    five_ = Digests(*shard_);
  }

  v1::StepPlan RollbackPlan(uint64_t position, const v1::SnapshotPoint& target) {
    v1::StepPlan plan;
    plan.set_job("gpt2");
    plan.set_timeline(2);
    plan.set_position(position);
    *plan.mutable_ballot() = MakeBallot(1);
    plan.set_round(1);
    plan.set_decide_version(proto::kDecideVersion);
    *plan.mutable_rollback()->mutable_target() = target;
    return plan;
  }
  static v1::StepRecord Decided(const v1::StepPlan& plan) {
    v1::StepRecord record;
    *record.mutable_plan() = plan;
    *record.mutable_decision() = plan.rollback().target().last_decision();
    return record;
  }
  // As its disk says, without the votes and gradients that are not on it.
  std::unique_ptr<DrivenShard> Restart() {
    std::unique_ptr<DrivenShard> fresh = Make(directory_);
    const auto restore = [&](const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
      fresh = Make(directory_);
      return fresh->core().Restore(snapshot.facts, snapshot.part, read);
    };
    const auto restored = RestoreNewest(directory_, restore);
    EXPECT_TRUE(restored.ok()) << restored.status();
    auto points = ListPoints(directory_, restored->position);
    EXPECT_TRUE(points.ok()) << points.status();
    fresh->core().RestoreSnapshots(*points);
    for (const journal::Entry& entry : shard_->journal().entries()) {
      const auto* prepare = std::get_if<journal::PrepareRecord>(&entry);
      v1::StepPlan plan;
      if (prepare != nullptr) {
        EXPECT_TRUE(plan.ParseFromString(prepare->prepared.plan()));
      }
      const auto* slice = std::get_if<journal::GradientSlice>(&entry);
      if (shard_->core().machine().IsVolatile(plan)) continue;
      if (slice != nullptr && slice->position > 2) continue;
      const absl::Status status = fresh->core().Replay(entry);
      EXPECT_TRUE(status.ok()) << status;
    }
    fresh->core().FinishReplay();
    return fresh;
  }

  simulation::SimulatedDirectory disk_{"/d", 1};
  SnapshotDirectory directory_{disk_, kSnapshotId};
  std::unique_ptr<DrivenShard> shard_ = Make(directory_);
  std::vector<v1::SnapshotPoint> points_;
  StateDigests two_;
  StateDigests five_;
};

TEST_F(RollbackTest, TheStateIsThatOfTheSnapshotAndGoesOnToTheSameBits) {
  const v1::StepPlan plan = RollbackPlan(12, points_[0]);
  const auto answers = shard_->Plan(plan);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].has_prepared()) << answers[0].DebugString();
  shard_->Decide(Decided(plan));
  EXPECT_EQ(Digests(*shard_).weights, two_.weights);
  EXPECT_EQ(Digests(*shard_).state, two_.state);
  EXPECT_EQ(shard_->state().applied_position(), 12u);
  EXPECT_EQ(shard_->state().applied_step(), 2u);
  EXPECT_EQ(shard_->state().timeline(), 2u);
  EXPECT_EQ(shard_->Push(0, 6, GradientOf(6)).code(), absl::StatusCode::kFailedPrecondition);
  for (uint64_t step = 3; step <= 5; ++step) shard_->Train(step, GradientOf(step));
  EXPECT_EQ(shard_->state().applied_position(), 15u);
  EXPECT_EQ(Digests(*shard_).weights, five_.weights);
  EXPECT_EQ(Digests(*shard_).state, five_.state);
  EXPECT_EQ(shard_->Read(2, 5), std::vector<float>(5, 9));
}

TEST_F(RollbackTest, KeepsTheSamplesOfStepsThatLedToTheSnapshot) {
  v1::ShardParameterRequest w;
  w.set_parameter_id(0);
  while (shard_->core().Sample()) {
  }
  // Parameters on a disk are not sampled.
  ASSERT_EQ(shard_->core().History(w)->samples_size(), ShardMemory::is_nvme() ? 0 : 1);
  if (ShardMemory::is_nvme()) return;
  EXPECT_TRUE(WriteSnapshot(*shard_, directory_).ok());
  const v1::SnapshotPoint five = PointOf(shard_->state());
  shard_->core().OnSnapshot(five, 1);
  shard_->Train(6, GradientOf(6));
  const v1::StepPlan plan = RollbackPlan(12, five);
  shard_->Plan(plan);
  shard_->Decide(Decided(plan));
  ASSERT_EQ(shard_->state().timeline(), 2u);
  ASSERT_EQ(shard_->core().History(w)->samples_size(), 1);
  EXPECT_EQ(shard_->core().History(w)->samples(0).step(), 5u);
}

// P6: killed anywhere between vote and decision, with whatever is on disk of what it forgot.
TEST_F(RollbackTest, ARestartReadsItAgainUntilItHasASnapshot) {
  std::unique_ptr<DrivenShard> restarted = Restart();
  EXPECT_EQ(restarted->state().applied_step(), 4u);
  EXPECT_TRUE(restarted->state().rollback_needed());
  ASSERT_EQ(restarted->state().snapshots_size(), 2);
  const v1::StepPlan plan = RollbackPlan(12, points_[0]);
  shard_->Plan(plan);
  restarted = Restart();
  EXPECT_TRUE(restarted->state().rollback_needed());
  EXPECT_TRUE(restarted->state().has_prepared());
  restarted->Promise(1);
  restarted->Decide(Decided(plan));
  EXPECT_EQ(restarted->state().applied_position(), 12u);
  EXPECT_EQ(Digests(*restarted).state, two_.state);
  shard_->Decide(Decided(plan));
  restarted = Restart();
  EXPECT_FALSE(restarted->state().rollback_needed());
  EXPECT_EQ(restarted->state().SerializeAsString(), shard_->state().SerializeAsString());
  EXPECT_EQ(Digests(*restarted).state, two_.state);
  // The snapshot of step 4 is not named any more.
  ASSERT_EQ(restarted->state().snapshots_size(), 1);
  // Once it has its own it begins there, and has forgotten again what came after.
  ASSERT_TRUE(WriteSnapshot(*shard_, directory_).ok());
  shard_->Train(3, GradientOf(3));
  restarted = Restart();
  EXPECT_EQ(restarted->state().applied_position(), 12u);
  EXPECT_TRUE(restarted->state().rollback_needed());
  ASSERT_EQ(restarted->state().snapshots_size(), 2);
  EXPECT_EQ(restarted->state().snapshots(0).position(), 4u);
  EXPECT_EQ(restarted->state().snapshots(1).position(), 12u);
}

// All shards have forgotten step 5, whose decision is in this one's journal; and so is its vote for
// a rollback at a later position, of which nobody was told. The rollback that was decided has the
// position of step 5.
TEST_F(RollbackTest, ARestartKnowsWhatIsOlderThanItsSnapshotWhateverItsPosition) {
  std::unique_ptr<DrivenShard> shard = Restart();
  shard->Promise(1);
  const v1::StepPlan plan = RollbackPlan(7, points_[1]);
  shard->Plan(plan);
  shard->Decide(Decided(plan));
  ASSERT_EQ(shard->state().applied_position(), 7u);
  ASSERT_TRUE(WriteSnapshot(*shard, directory_).ok());
  std::vector<journal::Entry> entries;
  for (const journal::Entry& entry : shard_->journal().entries()) {
    if (std::holds_alternative<journal::DecisionRecord>(entry)) entries.push_back(entry);
  }
  journal::PrepareRecord untold;
  untold.prepared.set_plan(RollbackPlan(9, points_[1]).SerializeAsString());
  untold.generation = 1;
  entries.push_back(untold);
  const std::vector<journal::Entry>& after = shard->journal().entries();
  entries.insert(entries.end(), after.begin(), after.end());
  std::unique_ptr<DrivenShard> fresh = Make(directory_);
  const auto restore = [&](const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
    return fresh->core().Restore(snapshot.facts, snapshot.part, read);
  };
  ASSERT_EQ(RestoreNewest(directory_, restore)->position, 7u);
  for (const journal::Entry& entry : entries) {
    const absl::Status status = fresh->core().Replay(entry);
    EXPECT_TRUE(status.ok()) << status;
  }
  fresh->core().FinishReplay();
  EXPECT_EQ(fresh->state().timeline(), 2u);
  EXPECT_EQ(fresh->state().applied_step(), 4u);
  EXPECT_FALSE(fresh->state().has_prepared());
}

TEST_F(RollbackTest, ADamagedSnapshotIsRefusedAndNothingChanges) {
  const std::string name = "snapshot-0000000000000004.shard-00000-of-00001.0000.safetensors";
  ASSERT_TRUE(disk_.FlipBit(name, 4096 * 8 + 77).ok());
  const auto answers = shard_->Plan(RollbackPlan(12, points_[0]));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_TRUE(absl::StrContains(answers[0].refused().detail(), name))
      << answers[0].refused().detail();
  EXPECT_EQ(Digests(*shard_).state, five_.state);
  EXPECT_EQ(shard_->state().snapshots_size(), 1);
  shard_->Train(6, GradientOf(6));
  EXPECT_EQ(shard_->state().applied_step(), 6u);
}

TEST_F(RollbackTest, TheJournalOfAnotherModeIsNamed) {
  std::unique_ptr<DrivenShard> fresh = Make(directory_);
  absl::Status status;
  for (const journal::Entry& entry : shard_->journal().entries()) {
    const auto* slice = std::get_if<journal::GradientSlice>(&entry);
    if (slice != nullptr && slice->position > 2) continue;
    status = fresh->core().Replay(entry);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), "the vote of position 3")) << status;
}

}  // namespace
}  // namespace kaon::shard
