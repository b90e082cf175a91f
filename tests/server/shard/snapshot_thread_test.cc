#include "server/shard/snapshot_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "server/journal/interval_schedule.h"
#include "tests/server/journal/hooked_directory.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/shard_checkpoint.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

constexpr uint64_t kGrowth = 1000;
const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};

// The disk is touched by the test only while the thread has nothing to do.
class SnapshotThreadTest : public testing::Test {
 protected:
  SnapshotThreadTest() { shard_.Load(); }
  ~SnapshotThreadTest() override { thread_.reset(); }

  void Start(const RestoredSnapshot& restored = {}) {
    auto disk = std::make_unique<simulation::SimulatedDirectory>("/d", 1);
    disk_ = disk.get();
    SnapshotThread::Options options;
    options.journal_bytes = kGrowth;
    options.truncate = [this](uint64_t position) {
      MutexLock lock(mu_);
      truncated_to_ = position;
    };
    options.on_failed = [this](const absl::Status& status) {
      MutexLock lock(mu_);
      failed_ = status;
    };
    thread_ = std::make_unique<SnapshotThread>(std::move(disk), kSnapshotId, restored,
                                               std::move(options));
  }
  // One more step after which the journal has grown to so much.
  void Step(uint64_t appended_bytes) {
    shard_.Train(++step_, kGradients);
    thread_->OnApplied(shard_.core(), appended_bytes);
  }
  void MakeDurable() { thread_->OnDurable(step_ + 2); }
  void AwaitEnd() {
    while (thread_->Status().in_progress()) std::this_thread::yield();
  }
  // Of a checkpoint of the state as it is.
  void Restore() {
    shard_.SetCheckpoints(&checkpoints_);
    const v1::RestoreBody restore = WriteShardCheckpoint(shard_, checkpoints_, "first");
    v1::StepRecord record;
    *record.mutable_plan() = RestorePlan(shard_, restore, 2);
    *record.mutable_decision() = restore.last_decision();
    shard_.Plan(record.plan());
    shard_.Decide(record);
  }
  uint64_t truncated_to() {
    MutexLock lock(mu_);
    return truncated_to_;
  }

  simulation::SimulatedDirectory checkpoints_{"checkpoints", 1};
  DrivenShard shard_;
  uint64_t step_ = 0;
  simulation::SimulatedDirectory* disk_ = nullptr;
  std::unique_ptr<SnapshotThread> thread_;
  Mutex mu_;
  uint64_t truncated_to_ = 0;
  absl::Status failed_;
};

TEST_F(SnapshotThreadTest, TakesOneEachTimeTheJournalHasGrownAndKeepsTwo) {
  Start();
  Step(kGrowth - 1);
  EXPECT_FALSE(thread_->Status().in_progress());
  for (uint64_t i = 1; i <= 4; ++i) {
    Step(i * kGrowth);
    EXPECT_TRUE(thread_->Status().in_progress());
    // The state goes on, the snapshot does not.
    const uint64_t position = step_ + 2;
    MakeDurable();
    Step(i * kGrowth + 1);
    AwaitEnd();
    const v1::SnapshotStatus status = thread_->Status();
    EXPECT_EQ(status.position(), position);
    EXPECT_EQ(status.step(), position - 2);
    EXPECT_GT(status.bytes(), 100u);
    EXPECT_EQ(status.problem(), "");
    EXPECT_EQ(truncated_to(), i == 1 ? 0 : position - 2);
  }
  uint64_t bytes = 0;
  const std::vector<std::string> names = *disk_->List();
  EXPECT_EQ(names.size(), 4u);
  for (const std::string& name : names) bytes += *(*disk_->Open(name))->Size();
  EXPECT_EQ(thread_->disk_bytes(), bytes);
}

// A restart must not need the checkpoint for long.
TEST_F(SnapshotThreadTest, TakesOneRightAfterARestore) {
  Start();
  Restore();
  thread_->OnApplied(shard_.core(), 1);
  EXPECT_TRUE(thread_->Status().in_progress());
  thread_->OnDurable(shard_.state().applied_position());
  AwaitEnd();
  EXPECT_EQ(thread_->Status().position(), shard_.state().applied_position());
}

// Nor must the restart after the next, if the shard died before that snapshot was whole.
TEST_F(SnapshotThreadTest, TakesOneAtTheStartIfARestoreWasReadAgain) {
  Restore();
  RestoredSnapshot restored;
  restored.position = 1;
  restored.timeline = 1;
  Start(restored);
  thread_->OnStarted(shard_.core(), 0);
  AwaitEnd();
  EXPECT_EQ(thread_->Status().position(), shard_.state().applied_position());
  thread_.reset();
  restored.position = shard_.state().applied_position();
  restored.timeline = shard_.state().timeline();
  Start(restored);
  thread_->OnStarted(shard_.core(), 0);
  EXPECT_FALSE(thread_->Status().in_progress());
}

// However little the journal has grown since.
TEST_F(SnapshotThreadTest, TriesAgainAtTheNextEntryIfThatOfARestoreWasGivenUp) {
  Start();
  disk_->SetFreeBytes(100);
  Restore();
  thread_->OnApplied(shard_.core(), 1);
  AwaitEnd();
  EXPECT_EQ(thread_->Status().position(), 0u);
  disk_->SetUnbounded();
  shard_.Train(1, kGradients);
  thread_->OnApplied(shard_.core(), 2);
  thread_->OnDurable(shard_.state().applied_position());
  AwaitEnd();
  EXPECT_EQ(thread_->Status().position(), shard_.state().applied_position());
}

// The journal must be able to go on from an older one.
TEST_F(SnapshotThreadTest, ASnapshotWhoseDecisionIsNotDurableDoesNotExist) {
  Start();
  Step(kGrowth);
  thread_->OnDurable(step_ + 1);
  thread_->Stop();
  EXPECT_EQ(thread_->Status().position(), 0u);
  EXPECT_FALSE(thread_->Status().in_progress());
  EXPECT_TRUE((*disk_->List()).empty());
  // And nothing is begun any more.
  Step(3 * kGrowth);
  EXPECT_FALSE(thread_->Status().in_progress());
}

TEST_F(SnapshotThreadTest, AFullDiskIsNamedAndTheNextTriggerTriesAgain) {
  Start();
  disk_->SetFreeBytes(100);
  Step(kGrowth);
  MakeDurable();
  AwaitEnd();
  EXPECT_TRUE(absl::StrContains(thread_->Status().problem(), "/d/snapshot-0000000000000003"))
      << thread_->Status().problem();
  EXPECT_EQ(thread_->Status().position(), 0u);
  EXPECT_TRUE((*disk_->List()).empty());
  disk_->SetUnbounded();
  Step(kGrowth + 1);
  EXPECT_FALSE(thread_->Status().in_progress());
  Step(2 * kGrowth);
  MakeDurable();
  AwaitEnd();
  EXPECT_EQ(thread_->Status().position(), 5u);
  EXPECT_EQ(thread_->Status().problem(), "");
}

// A start after a clean end replays nothing.
TEST_F(SnapshotThreadTest, TakesALastOneOfWhatIsNotInTheNewest) {
  Start();
  Step(kGrowth);
  // The one that is being written comes first.
  Step(kGrowth + 1);
  MakeDurable();
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(thread_->Status().position(), step_ + 2);
  EXPECT_FALSE(thread_->Status().in_progress());
  const std::vector<std::string> names = *disk_->List();
  EXPECT_EQ(names.size(), 4u);
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(*disk_->List(), names);
}

TEST_F(SnapshotThreadTest, GivesALastOneUpWhenItsTimeIsOver) {
  Start();
  Step(1);
  // Its decision is never durable: the disk is full, say.
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Milliseconds(1));
  EXPECT_TRUE(thread_->Status().in_progress());
  thread_->Stop();
  EXPECT_EQ(thread_->Status().position(), 0u);
  EXPECT_TRUE((*disk_->List()).empty());
  // Nor is one begun after the end.
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_FALSE(thread_->Status().in_progress());
}

// What was replayed is durable, though nothing was applied since.
TEST_F(SnapshotThreadTest, TakesALastOneOfWhatWasReplayed) {
  shard_.Train(++step_, kGradients);
  Start();
  thread_->OnStarted(shard_.core(), 0);
  EXPECT_FALSE(thread_->Status().in_progress());
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(thread_->Status().position(), step_ + 2);
}

// A damaged one, of which the shard did not start, is left where it is.
TEST_F(SnapshotThreadTest, TakesNoLastOneWhereOneOfThatPositionIs) {
  Start();
  Step(1);
  MakeDurable();
  const std::string name =
      absl::StrCat(SnapshotDirectory::IdOf(step_ + 2), ".shard-00000-of-00001.0000.safetensors");
  ASSERT_TRUE(disk_->Create(name).ok());
  ASSERT_TRUE(disk_->Create(absl::StrCat(SnapshotDirectory::IdOf(step_ + 2), ".meta")).ok());
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(thread_->Status().position(), 0u);
  EXPECT_EQ(disk_->List()->size(), 2u);
  MutexLock lock(mu_);
  EXPECT_EQ(failed_, absl::OkStatus());
}

TEST_F(SnapshotThreadTest, TakesNoLastOneWhereThereIsNoRoom) {
  Start();
  disk_->SetFreeBytes(100);
  Step(1);
  MakeDurable();
  thread_->TakeLast(shard_.core(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(thread_->Status().position(), 0u);
  EXPECT_TRUE((*disk_->List()).empty());
}

TEST_F(SnapshotThreadTest, ADrainWaitsForOneOfTheNewestEntry) {
  Start();
  Step(1);
  // Until its decision is durable, no snapshot is whole.
  for (int asked = 0; asked < 2; ++asked) {
    const absl::StatusOr<bool> ready = thread_->TakeForDrain(shard_.core(), 7);
    ASSERT_TRUE(ready.ok()) << ready.status();
    EXPECT_FALSE(*ready);
  }
  MakeDurable();
  AwaitEnd();
  EXPECT_TRUE(*thread_->TakeForDrain(shard_.core(), 7));
  EXPECT_EQ(thread_->Status().position(), step_ + 2);
  EXPECT_TRUE(*thread_->TakeForDrain(shard_.core(), 8)) << "it is there already";
  Step(2);
  EXPECT_FALSE(*thread_->TakeForDrain(shard_.core(), 8)) << "another entry was applied";
}

TEST_F(SnapshotThreadTest, ADrainTriesToWriteOneOnce) {
  Start();
  disk_->SetFreeBytes(100);
  Step(1);
  MakeDurable();
  EXPECT_FALSE(*thread_->TakeForDrain(shard_.core(), 7));
  AwaitEnd();
  const absl::Status full = thread_->TakeForDrain(shard_.core(), 7).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_TRUE(absl::StrContains(full.message(), "No space left on device")) << full;
  EXPECT_FALSE(thread_->Status().in_progress());
  // The next drain tries again.
  EXPECT_FALSE(*thread_->TakeForDrain(shard_.core(), 8));
  AwaitEnd();
}

TEST_F(SnapshotThreadTest, AFailingDeviceEndsTheProcess) {
  Start();
  disk_->FailAfter(3);
  Step(kGrowth);
  AwaitEnd();
  thread_->Stop();
  MutexLock lock(mu_);
  EXPECT_EQ(failed_.code(), absl::StatusCode::kDataLoss) << failed_;
}

// P18: its last words name the file, what was done to it and the system's reason.
TEST_F(SnapshotThreadTest, AFailingDeviceIsTheLastThingInTheLog) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto disk = std::make_unique<simulation::SimulatedDirectory>("/d", 1);
        disk->FailAfter(3);
        SnapshotThread::Options options;
        options.journal_bytes = kGrowth;
        thread_ = std::make_unique<SnapshotThread>(std::move(disk), kSnapshotId, RestoredSnapshot(),
                                                   std::move(options));
        Step(kGrowth);
        MakeDurable();
        AwaitEnd();
        thread_->Stop();
      },
      "snapshot: DATA_LOSS: .*/d.*: Input/output error");
}

TEST_F(SnapshotThreadTest, GoesOnFromTheOneThatWasRestored) {
  RestoredSnapshot restored;
  restored.position = 2;
  restored.bytes = 77;
  restored.skipped = {"snapshot-0000000000000004 is not used: it is torn"};
  Start(restored);
  EXPECT_EQ(thread_->Status().position(), 2u);
  EXPECT_EQ(thread_->Status().problem(), restored.skipped[0]);
  Step(kGrowth);
  MakeDurable();
  AwaitEnd();
  // That one is the older of the two.
  EXPECT_EQ(truncated_to(), 2u);
}

// Mode interval(4): points are the even steps.
class ScheduledSnapshotTest : public SnapshotThreadTest {
 protected:
  void StartScheduled(const RestoredSnapshot& restored = {}) {
    auto disk = std::make_unique<journal::HookedDirectory>(below_);
    disk->set_hook([this](absl::string_view operation, const std::string& name) {
      if (operation == "write") begun_ = true;
      if (operation != refused_ && (!full_ || operation != "write")) return absl::OkStatus();
      return absl::ResourceExhaustedError("no room for /d/" + name);
    });
    SnapshotThread::Options options;
    options.schedule = journal::IntervalSchedule(4);
    options.retry_delay = absl::Milliseconds(1);
    options.on_room = [this](const absl::Status& status) { there_is_room_ = status.ok(); };
    options.truncate = [](uint64_t) {};
    options.on_failed = [this](const absl::Status& status) {
      MutexLock lock(mu_);
      failed_ = status;
    };
    options.on_snapshot = [this](const v1::SnapshotPoint& snapshot, uint64_t timeline) {
      MutexLock lock(mu_);
      durable_.push_back({timeline, snapshot.step()});
    };
    thread_ = std::make_unique<SnapshotThread>(std::move(disk), kSnapshotId, restored,
                                               std::move(options));
  }
  std::vector<std::pair<uint64_t, uint64_t>> durable() {
    MutexLock lock(mu_);
    return durable_;
  }

  ~ScheduledSnapshotTest() override { thread_.reset(); }

  std::vector<std::pair<uint64_t, uint64_t>> durable_;
  std::atomic<bool> full_{false};
  // Another operation for which there is no room; set before the first.
  std::string refused_;
  // As the thread said last.
  std::atomic<bool> there_is_room_{true};
  // The thread has come to the first snapshot.
  std::atomic<bool> begun_{false};
  simulation::SimulatedDirectory below_{"/d", 1};
};

TEST_F(ScheduledSnapshotTest, TakesEveryPointAndOneMayWaitForAnother) {
  StartScheduled();
  // What the shard started at: its weights are loaded.
  thread_->OnApplied(shard_.core(), 0);
  EXPECT_TRUE(thread_->Status().in_progress());
  Step(0);
  // The next point comes before the first snapshot is durable.
  while (!begun_) std::this_thread::yield();
  Step(0);
  EXPECT_TRUE(durable().empty());
  MakeDurable();
  AwaitEnd();
  EXPECT_EQ(durable(), (std::vector<std::pair<uint64_t, uint64_t>>{{1, 0}, {1, 2}}));
  Step(0);
  EXPECT_FALSE(thread_->Status().in_progress());
  // Once each.
  thread_->OnApplied(shard_.core(), 1 << 20);
  EXPECT_FALSE(thread_->Status().in_progress());
}

TEST_F(ScheduledSnapshotTest, WhatItStartedFromIsNotTakenAgain) {
  RestoredSnapshot restored;
  restored.position = 2;
  StartScheduled(restored);
  thread_->OnApplied(shard_.core(), 0);
  EXPECT_FALSE(thread_->Status().in_progress());
}

// A snapshot that was given up would be missed by every later rollback.
TEST_F(ScheduledSnapshotTest, AFullDiskIsNamedAndWaitedFor) {
  StartScheduled();
  full_ = true;
  Step(0);
  Step(0);
  MakeDurable();
  while (thread_->Status().problem().empty()) std::this_thread::yield();
  EXPECT_TRUE(thread_->Status().in_progress());
  EXPECT_TRUE(absl::StrContains(thread_->Status().problem(), "/d/snapshot-0000000000000004"))
      << thread_->Status().problem();
  EXPECT_FALSE(there_is_room_);
  EXPECT_EQ(thread_->read_only_reason(), thread_->Status().problem());
  full_ = false;
  AwaitEnd();
  EXPECT_TRUE(there_is_room_);
  EXPECT_EQ(thread_->read_only_reason(), "");
  EXPECT_EQ(thread_->Status().problem(), "");
  EXPECT_EQ(thread_->Status().step(), 2u);
  // A shard that ends does not wait, nor does its step thread for what is being written.
  full_ = true;
  Step(0);
  Step(0);
  thread_->StopWaiting();
  AwaitEnd();
  EXPECT_EQ(thread_->Status().step(), 2u);
  thread_->Stop();
  EXPECT_EQ(failed_, absl::OkStatus());
}

// Votes would wait for it for ever.
TEST_F(ScheduledSnapshotTest, ASyncThatFindsTheDiskFullEndsTheProcess) {
  StartScheduled();
  refused_ = "sync";
  thread_->OnApplied(shard_.core(), 0);
  MakeDurable();
  AwaitEnd();
  thread_->Stop();
  MutexLock lock(mu_);
  EXPECT_TRUE(absl::StrContains(failed_.message(), "no room")) << failed_;
}

}  // namespace
}  // namespace kaon::shard
