// One shard whose job is deleted: its memory, its workers, its journal and its snapshots (ADR
// 0048).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/shard/snapshot/snapshot_points.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};
constexpr char kDeleted[] = "job \"gpt2\" was deleted";

// Deletes the job after step 1.
void TrainAndDelete(DrivenShard& shard) {
  shard.Load();
  shard.Train(1, kGradients);
  ASSERT_TRUE(shard.Plan(DeletionPlan(4, 1, 1)).at(0).has_prepared());
  ASSERT_EQ(shard.Decide(Applying(DeletionPlan(4, 1, 1))).at(0).applied().position(), 4u);
}

// Registers the job anew in timeline 2, and trains one step with other weights.
void TrainNext(DrivenShard& shard) {
  v1::StepPlan registration = RegistrationPlan(1, 1);
  registration.set_position(5);
  registration.set_timeline(2);
  registration.set_config_revision(4);
  ASSERT_TRUE(shard.Plan(registration).at(0).has_prepared());
  shard.Decide(Applying(registration));
  v1::StepPlan load = LoadPlan(1, 1);
  load.set_position(6);
  load.set_timeline(2);
  load.set_config_revision(5);
  shard.Plan(load);
  shard.SetTimeline(2);
  ASSERT_TRUE(
      shard.Push(0, 0, {{8, 2, 3, 4, 5, 6}, std::vector<float>(4, 1), std::vector<float>(5, 9)})
          .ok());
  shard.Pump();
  shard.Decide(Applying(load));
  shard.Train(1, kGradients);
}

v1::PullRequest PullOf(uint64_t timeline, uint64_t step) {
  v1::PullRequest pull;
  pull.set_job("gpt2");
  pull.set_timeline(timeline);
  pull.set_step(step);
  pull.set_dtype(v1::DTYPE_FLOAT32);
  pull.add_parameter_ids(0);
  return pull;
}

TEST(JobDeletionTest, ReleasesTheMemoryAndTellsEveryCaller) {
  DrivenShard shard;
  TrainAndDelete(shard);
  EXPECT_EQ(shard.store().used_bytes(), 0u);
  EXPECT_EQ(shard.core().parameters(), nullptr);
  const absl::Status pushed = shard.Push(0, 2, kGradients);
  EXPECT_EQ(pushed, absl::NotFoundError(kDeleted));
  EXPECT_EQ(shard.core().publisher().CheckPull(PullOf(1, 1)), absl::NotFoundError(kDeleted));
  EXPECT_EQ(shard.core().Describe("gpt2").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(shard.core().Describe("")->state_digest(), 0u);
  v1::ShardParameterRequest request;
  EXPECT_EQ(shard.core().Stats(request).status().code(), absl::StatusCode::kNotFound);
  // Nothing of the job can be kept any more.
  EXPECT_EQ(shard.Take("late", 4).at(0).checkpoint().error_code(),
            static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
}

TEST(JobDeletionTest, EndsPushesAndPullsThatAreOpen) {
  DrivenShard shard;
  shard.Load();
  const v1::StepPlan step = TrainPlan(1, 1, 1);
  shard.Plan(step);
  v1::PushOpen open;
  open.set_job("gpt2");
  open.set_timeline(1);
  open.set_step(1);
  *open.mutable_attempt() = step.step().members(0).attempt();
  absl::Status ended;
  ASSERT_TRUE(shard.core()
                  .accumulator()
                  .Open(open, {[](uint64_t) {}, [&](const absl::Status& why) { ended = why; }})
                  .ok());
  bool woken = false;
  ASSERT_GT(*shard.core().publisher().Await(0, 1, [&woken] { woken = true; }), 0u);
  ASSERT_TRUE(shard.Plan(DeletionPlan(3, 1, 2)).at(0).has_prepared());
  EXPECT_TRUE(ended.ok());
  shard.Decide(Applying(DeletionPlan(3, 1, 2)));
  EXPECT_EQ(ended, absl::NotFoundError(kDeleted));
  EXPECT_TRUE(woken);
  EXPECT_EQ(shard.core().publisher().CheckTimeline(1), absl::NotFoundError(kDeleted));
  std::vector<float> values(6);
  EXPECT_FALSE(shard.core()
                   .publisher()
                   .Read(0, 0, 0, kernels::DType::kFloat32, absl::MakeSpan(values))
                   .ok());
}

TEST(JobDeletionTest, TheNextJobHasTheBitsOfAFreshShard) {
  DrivenShard shard;
  TrainAndDelete(shard);
  TrainNext(shard);
  DrivenShard fresh;
  fresh.Load(RegistrationPlan(1, 1), 8);
  fresh.Train(1, kGradients);
  EXPECT_EQ(shard.Read(0, 1), fresh.Read(0, 1));
  EXPECT_EQ(shard.core().parameters()->Digests().state, fresh.core().parameters()->Digests().state);
  EXPECT_EQ(shard.store().used_bytes(), fresh.store().used_bytes());
  // The old job's workers are of an older timeline.
  EXPECT_EQ(shard.core().publisher().CheckPull(PullOf(1, 1)).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A crash may leave any beginning of the journal: each gives the whole job, or none.
TEST(JobDeletionTest, EveryBeginningOfTheJournalGivesOneWholeState) {
  DrivenShard shard;
  TrainAndDelete(shard);
  TrainNext(shard);
  const auto& entries = shard.journal().entries();
  int without_job = 0;
  for (size_t length = 0; length <= entries.size(); ++length) {
    DrivenShard restarted;
    for (size_t i = 0; i < length; ++i) {
      const absl::Status replayed = restarted.core().Replay(entries[i]);
      ASSERT_TRUE(replayed.ok()) << i << ": " << replayed;
    }
    restarted.core().FinishReplay();
    const v1::ShardState state = restarted.state();
    const bool deleted = state.applied_record().plan().has_job_deletion();
    EXPECT_EQ(state.has_registration(), state.applied_position() > 0 && !deleted) << length;
    if (deleted && !state.has_prepared()) {
      EXPECT_EQ(restarted.store().used_bytes(), 0u) << length;
      EXPECT_EQ(restarted.Push(0, 2, kGradients), absl::NotFoundError(kDeleted));
      ++without_job;
    }
    if (length == entries.size()) {
      EXPECT_EQ(restarted.Read(0, 1), shard.Read(0, 1));
    }
  }
  EXPECT_GT(without_job, 0);
}

// The snapshot of the deletion stands for all that came before it.
TEST(JobDeletionTest, ARestartGoesOnFromTheSnapshotOfTheDeletion) {
  simulation::SimulatedDirectory disk("/d", 1);
  SnapshotDirectory directory(disk, kSnapshotId);
  DrivenShard shard;
  shard.Load();
  ASSERT_TRUE(WriteSnapshot(shard, directory).ok());
  shard.Train(1, kGradients);
  shard.Plan(DeletionPlan(4, 1, 1));
  shard.Decide(Applying(DeletionPlan(4, 1, 1)));
  ASSERT_TRUE(WriteSnapshot(shard, directory).ok());
  ASSERT_TRUE(directory.RemoveBefore(4).ok());
  EXPECT_EQ(*directory.List(), std::vector<uint64_t>{4});
  EXPECT_EQ(disk.List()->size(), 1u);
  ASSERT_TRUE(directory.Verify(4).ok());
  auto restarted = std::make_unique<DrivenShard>();
  const absl::StatusOr<RestoredSnapshot> restored = RestoreNewest(directory, &restarted);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(restored->no_job);
  EXPECT_EQ(restored->position, 4u);
  for (const journal::Entry& entry : shard.journal().entries()) {
    ASSERT_TRUE(restarted->core().Replay(entry).ok());
  }
  restarted->core().FinishReplay();
  EXPECT_EQ(restarted->state().SerializeAsString(), shard.state().SerializeAsString());
  EXPECT_EQ(restarted->Push(0, 2, kGradients), absl::NotFoundError(kDeleted));
  TrainNext(*restarted);
  TrainNext(shard);
  EXPECT_EQ(restarted->Read(0, 1), shard.Read(0, 1));
  // No state to which the next job could be rolled back.
  EXPECT_TRUE(ListPoints(directory, 4)->empty());
}

}  // namespace
}  // namespace kaon::shard
