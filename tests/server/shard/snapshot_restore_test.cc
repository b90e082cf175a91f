// A shard that starts from a snapshot and what its journal holds beyond it is, bit for bit, the
// shard that starts from the whole journal.
#include "server/shard/snapshot_restore.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "server/disk/device_error.h"
#include "tests/server/shard/shard_history.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

using journal::Entry;

ShardHistory UpTo(const ShardHistory& history, uint64_t position) {
  ShardHistory part;
  for (const Operation& operation : history.operations) {
    if (operation.position <= position) part.operations.push_back(operation);
  }
  return part;
}

// Number of entries up to the decision of `position`.
size_t DecidedAt(const std::vector<Entry>& entries, uint64_t position) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto* decision = std::get_if<journal::DecisionRecord>(&entries[i]);
    if (decision != nullptr && decision->record.plan().position() == position) return i + 1;
  }
  ADD_FAILURE() << "position " << position << " is not decided";
  return 0;
}

void Replay(absl::Span<const Entry> entries, DrivenShard& shard) {
  for (const Entry& entry : entries) {
    const absl::Status status = shard.core().Replay(entry);
    ASSERT_TRUE(status.ok()) << status;
  }
  shard.core().FinishReplay();
  EXPECT_TRUE(shard.core().TakeOutputs().empty());
}

// P6, P7: from any snapshot, killed after any entry behind it, it goes on with the same inputs to
// the same bits; the journal before it may be there or not.
TEST(SnapshotRestoreTest, AnySnapshotAndWhatFollowsItGoOnToTheSameBits) {
  int restored = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const ShardHistory history = MakeHistory(seed, 5);
    DrivenShard undisturbed;
    const std::map<uint64_t, Observed> expected = Play(history, 1, undisturbed);
    const std::vector<Entry> entries = undisturbed.journal().entries();
    for (uint64_t position = 2; position <= expected.rbegin()->first; ++position) {
      simulation::SimulatedDirectory disk("/d", seed);
      SnapshotDirectory directory(disk, kSnapshotId);
      DrivenShard writer;
      Play(UpTo(history, position), 1, writer);
      ASSERT_TRUE(WriteSnapshot(writer, directory).ok());
      const size_t decided = DecidedAt(entries, position);
      for (size_t kept = decided; kept <= entries.size(); kept += 1 + seed % 3) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", snapshot of position " +
                     std::to_string(position) + ", killed after entry " + std::to_string(kept));
        std::unique_ptr<DrivenShard> shard;
        const absl::StatusOr<RestoredSnapshot> found = RestoreNewest(directory, &shard);
        ASSERT_TRUE(found.ok() && found->position == position) << found.status();
        const size_t from = kept % 2 == 0 ? 0 : decided - 1;
        Replay(absl::MakeConstSpan(entries).subspan(from, kept - from), *shard);
        const uint64_t at = shard->core().machine().applied_position();
        // A vote for the next entry may be held too.
        if (kept == decided) {
          ASSERT_EQ(Describe(*shard), expected.at(at).description);
        }
        for (const auto& [next, observed] : Play(history, at + 1, *shard)) {
          ASSERT_EQ(observed.prepared, expected.at(next).prepared) << "position " << next;
          ASSERT_EQ(observed.description, expected.at(next).description) << "position " << next;
        }
        ++restored;
      }
    }
  }
  EXPECT_GT(restored, 500);
}

class TwoSnapshotsTest : public testing::Test {
 protected:
  TwoSnapshotsTest() {
    shard_.Load();
    shard_.Train(1, kGradients);
    EXPECT_TRUE(WriteSnapshot(shard_, directory_).ok());
    shard_.Train(2, kGradients);
    EXPECT_TRUE(WriteSnapshot(shard_, directory_).ok());
  }

  const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};
  simulation::SimulatedDirectory disk_{"/d", 1};
  SnapshotDirectory directory_{disk_, kSnapshotId};
  DrivenShard shard_;
  std::unique_ptr<DrivenShard> restored_;
};

TEST_F(TwoSnapshotsTest, TheNewerIsRestored) {
  const absl::StatusOr<RestoredSnapshot> found = RestoreNewest(directory_, &restored_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->position, 4u);
  EXPECT_EQ(found->step, 2u);
  EXPECT_GT(found->bytes, 100u);
  EXPECT_TRUE(found->skipped.empty());
  EXPECT_EQ(Describe(*restored_), Describe(shard_));
  EXPECT_EQ(restored_->Read(0, 2), shard_.Read(0, 2));
  EXPECT_EQ(restored_->Read(2, 2), shard_.Read(2, 2));
}

// P8: a bad one is found before it is used, named, skipped, and left where it is.
TEST_F(TwoSnapshotsTest, ABadNewerOneIsNamedSkippedAndNeverDeleted) {
  const std::string name = "snapshot-0000000000000004.shard-00000-of-00001.0000.safetensors";
  ASSERT_TRUE(disk_.FlipBit(name, 4096 * 8 + 77).ok());
  const std::vector<std::string> names = *disk_.List();
  const absl::StatusOr<RestoredSnapshot> found = RestoreNewest(directory_, &restored_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->position, 3u);
  ASSERT_EQ(found->skipped.size(), 1u);
  EXPECT_TRUE(absl::StrContains(found->skipped[0], "/d/" + name)) << found->skipped[0];
  EXPECT_EQ(restored_->core().machine().applied_position(), 3u);
  // Two newer whole ones come; the oldest goes, the bad one stays.
  SnapshotDirectory directory(disk_, kSnapshotId);
  directory.SetWhole(3);
  Replay(shard_.journal().entries(), *restored_);
  ASSERT_EQ(Describe(*restored_), Describe(shard_));
  for (uint64_t step = 3; step <= 4; ++step) {
    restored_->Train(step, kGradients);
    ASSERT_TRUE(WriteSnapshot(*restored_, directory).ok());
    ASSERT_TRUE(directory.Retain().ok());
  }
  EXPECT_EQ(*directory.List(), (std::vector<uint64_t>{6, 5, 4}));
  EXPECT_EQ(directory.oldest_kept(), 5u);
}

// P18: damage is passed over, a device that fails is not, wherever it begins to: what it holds may
// be whole.
TEST_F(TwoSnapshotsTest, NoOlderOneTakesThePlaceOfOneThatCannotBeRead) {
  uint64_t failed = 0;
  for (uint64_t operations = 0;; ++operations) {
    SCOPED_TRACE("after " + std::to_string(operations) + " operations");
    disk_.FailAfter(operations);
    const absl::StatusOr<RestoredSnapshot> found = RestoreNewest(directory_, &restored_);
    disk_.SetHealthy();
    if (found.ok()) {
      EXPECT_EQ(found->position, 4u);
      break;
    }
    EXPECT_TRUE(disk::IsDeviceError(found.status())) << found.status();
    EXPECT_TRUE(absl::StrContains(found.status().message(), "/d")) << found.status();
    EXPECT_TRUE(absl::StrContains(found.status().message(), "Input/output error"))
        << found.status();
    ++failed;
  }
  EXPECT_GE(failed, 4u);
}

// Bits that flip on the way from the disk into memory, behind the checksums.
TEST_F(TwoSnapshotsTest, WhatWasReadIsComparedWithTheDigests) {
  const absl::StatusOr<Snapshot> snapshot = directory_.Load(4);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  DrivenShard shard;
  const absl::Status status =
      shard.core().Restore(snapshot->facts, snapshot->part,
                           [](const v1::CheckpointTensor&, uint64_t, absl::Span<char> to) {
                             std::fill(to.begin(), to.end(), 0);
                             return absl::OkStatus();
                           });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "the snapshot of position 4 was made with"))
      << status;
}

TEST_F(TwoSnapshotsTest, MemoryThatIsTooSmallTodayIsNoFaultOfTheSnapshot) {
  int tried = 0;
  const absl::Status status =
      RestoreNewest(directory_, [&](const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
        ++tried;
        DrivenShard small(256);
        return small.core().Restore(snapshot.facts, snapshot.part, read);
      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(tried, 1);
}

// A journal of which the decision at the snapshot's position is another one is not its journal.
TEST_F(TwoSnapshotsTest, AnotherDecisionInTheJournalIsALoss) {
  ASSERT_TRUE(RestoreNewest(directory_, &restored_).ok());
  const auto entries = shard_.journal().entries();
  auto decision = std::get<journal::DecisionRecord>(entries.back());
  ASSERT_EQ(decision.record.plan().position(), 4u);
  decision.record.mutable_decision()->set_next_loss_scale(2);
  const absl::Status status = restored_->core().Replay(decision);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "position 4: the journal's decision")) << status;
}

}  // namespace
}  // namespace kaon::shard
