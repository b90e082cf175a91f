#include "server/shard/snapshot/snapshot_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/disk/device_error.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

using simulation::SimulatedDirectory;

constexpr uint64_t kSeed = 20261121;
constexpr size_t kSectorBytes = 512;

const std::vector<std::vector<float>> kGradients = {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}};

// After `steps` steps: position steps + 2.
std::unique_ptr<DrivenShard> ShardAfter(uint64_t steps) {
  auto shard = std::make_unique<DrivenShard>();
  shard->Load();
  for (uint64_t step = 1; step <= steps; ++step) shard->Train(step, kGradients);
  return shard;
}

std::string Get(disk::Directory& directory, const std::string& name) {
  const auto file = *directory.Open(name);
  std::string bytes(*file->Size(), '\0');
  EXPECT_EQ(*file->Read(0, bytes.size(), &bytes[0]), bytes.size());
  return bytes;
}

void Put(disk::Directory& directory, const std::string& name, const std::string& bytes) {
  const absl::Status removed = directory.Remove(name);
  EXPECT_TRUE(removed.ok() || absl::IsNotFound(removed));
  const auto file = *directory.Create(name);
  EXPECT_TRUE(file->Write(0, {bytes}).ok());
}

class SnapshotDirectoryTest : public testing::Test {
 protected:
  std::vector<std::string> Names() { return *disk_.List(); }
  void ExpectDamaged(const std::string& name) {
    const absl::Status status = directory_.Verify(4);
    const bool found = absl::IsDataLoss(status) || absl::IsFailedPrecondition(status);
    const bool named = found && absl::StrContains(status.message(), "/d/" + name);
    EXPECT_TRUE(named) << name << ": " << status;
    // The step is in the .meta.
    const bool is_meta = absl::EndsWith(name, ".meta");
    EXPECT_TRUE(absl::StrContains(status.message(),
                                  is_meta ? "it is of position 4" : "it is of step 2, position 4"))
        << status;
    ++damaged_;
    found_ += named;
  }
  // For tests/report.py.
  void Report(const std::string& what) {
    std::cout << what << ": " << damaged_ << ", found " << found_ << ", naming the very file "
              << found_ << "; seed " << kSeed << std::endl;
  }

  SimulatedDirectory disk_{"/d", 1};
  SnapshotDirectory directory_{disk_, kSnapshotId};
  int damaged_ = 0;
  int found_ = 0;
};

TEST_F(SnapshotDirectoryTest, ListsWhatIsFinishedNewestFirst) {
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(2), directory_).ok());
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(14), directory_).ok());
  Put(disk_, "snapshot-0000000000000063.shard-00000-of-00001.0000.safetensors", "half");
  Put(disk_, "snapshot-0000000000000064.meta.tmp", "half");
  Put(disk_, "snapshot-64.meta", "what is this");
  EXPECT_EQ(*directory_.List(), (std::vector<uint64_t>{16, 4}));
  ASSERT_TRUE(directory_.RemoveUnfinished().ok());
  EXPECT_EQ(Names(), (std::vector<std::string>{
                         "snapshot-0000000000000004.meta",
                         "snapshot-0000000000000004.shard-00000-of-00001.0000.safetensors",
                         "snapshot-0000000000000010.meta",
                         "snapshot-0000000000000010.shard-00000-of-00001.0000.safetensors",
                         "snapshot-64.meta"}));
  uint64_t bytes = 0;
  for (const std::string& name : Names()) bytes += Get(disk_, name).size();
  EXPECT_EQ(*directory_.Bytes(), bytes - std::string("what is this").size());
}

// Every damage is found, and the error names the file (P8, T6).
TEST_F(SnapshotDirectoryTest, FindsEveryFlippedBitAndEveryTruncationNamingTheFile) {
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(2), directory_).ok());
  ASSERT_TRUE(directory_.Verify(4).ok());
  std::mt19937_64 random(kSeed);
  for (const std::string& name : Names()) {
    const std::string bytes = Get(disk_, name);
    for (int i = 0; i < 500; ++i) {
      std::string flipped = bytes;
      const uint64_t bit = random() % (bytes.size() * 8);
      flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
      Put(disk_, name, flipped);
      ExpectDamaged(name);
      if (absl::EndsWith(name, ".meta")) continue;
      const uint64_t fragment = bit / 8 / checkpoint::kFragmentBytes;
      EXPECT_TRUE(absl::StrContains(directory_.Verify(4).message(),
                                    absl::StrCat(": fragment ", fragment, " (bytes ")));
    }
    for (size_t size = 0; size < bytes.size(); size += 7) {
      Put(disk_, name, bytes.substr(0, size));
      ExpectDamaged(name);
    }
    Put(disk_, name, bytes + '\0');
    ExpectDamaged(name);
    Put(disk_, name, bytes);
  }
  Report("flipped bits and cuts of snapshots");
  const std::string file = "snapshot-0000000000000004.shard-00000-of-00001.0000.safetensors";
  ASSERT_TRUE(disk_.Remove(file).ok());
  ExpectDamaged(file);
}

// Torn and misdirected writes: sectors that read as each other, or as those of the snapshot before.
TEST_F(SnapshotDirectoryTest, FindsEverySwappedAndEveryStaleSectorNamingTheFile) {
  SimulatedDirectory before("/d", 1);
  SnapshotDirectory older(before, kSnapshotId);
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(1), older).ok());
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(2), directory_).ok());
  const std::vector<std::string> stale = *before.List();
  const std::vector<std::string> names = Names();
  ASSERT_EQ(stale.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string bytes = Get(disk_, names[i]);
    const std::string old = Get(before, stale[i]);
    const auto expect_damaged = [&](const std::string& damaged) {
      if (damaged == bytes) return;
      Put(disk_, names[i], damaged);
      ExpectDamaged(names[i]);
    };
    for (size_t a = 0; a < bytes.size(); a += kSectorBytes) {
      std::string damaged = bytes;
      const size_t in_both = std::min(old.size(), bytes.size());
      if (a < in_both) {
        const size_t length = std::min(kSectorBytes, in_both - a);
        expect_damaged(damaged.replace(a, length, old, a, length));
      }
      for (size_t b = a + kSectorBytes; b < bytes.size(); b += kSectorBytes) {
        damaged = bytes;
        const size_t length = std::min(kSectorBytes, bytes.size() - b);
        damaged.replace(a, length, bytes, b, length).replace(b, length, bytes, a, length);
        expect_damaged(damaged);
      }
    }
    Put(disk_, names[i], bytes);
  }
  EXPECT_TRUE(directory_.Verify(4).ok());
  EXPECT_GT(damaged_, 2);
  Report("swapped and stale sectors of snapshots");
}

TEST_F(SnapshotDirectoryTest, RefusesTheSnapshotOfAnotherDirectoryAndOfAnotherPosition) {
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(2), directory_).ok());
  SnapshotDirectory other(disk_, {1, 2});
  EXPECT_TRUE(absl::StrContains(
      other.Load(4).status().message(),
      "is of directory 11112222333344445555666677778888 and position 4, expecting "
      "00000000000000010000000000000002 and 4"));
  ASSERT_TRUE(
      disk_.Rename("snapshot-0000000000000004.meta", "snapshot-0000000000000005.meta").ok());
  EXPECT_TRUE(absl::StrContains(directory_.Load(5).status().message(), "position 4, expecting"));
  EXPECT_EQ(directory_.Load(4).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SnapshotDirectoryTest, KeepsTheTwoNewestWholeOnes) {
  for (uint64_t steps = 2; steps <= 5; ++steps) {
    ASSERT_TRUE(WriteSnapshot(*ShardAfter(steps), directory_).ok());
    ASSERT_TRUE(directory_.Retain().ok());
    EXPECT_EQ(directory_.oldest_kept(), steps == 2 ? 0 : steps + 1);
  }
  EXPECT_EQ(*directory_.List(), (std::vector<uint64_t>{7, 6}));
  EXPECT_EQ(Names().size(), 4u);
  // After a restart only snapshots that were read are known to be whole.
  SnapshotDirectory restarted(disk_, kSnapshotId);
  restarted.SetWhole(7);
  EXPECT_EQ(restarted.oldest_kept(), 0u);
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(6), restarted).ok());
  ASSERT_TRUE(disk_.FlipBit("snapshot-0000000000000006.meta", 1000).ok());
  ASSERT_TRUE(restarted.Retain().ok());
  EXPECT_EQ(*restarted.List(), (std::vector<uint64_t>{8, 7, 6}));
  ASSERT_TRUE(disk_.FlipBit("snapshot-0000000000000006.meta", 1000).ok());
  ASSERT_TRUE(restarted.Retain().ok());
  EXPECT_EQ(*restarted.List(), (std::vector<uint64_t>{8, 7}));
}

TEST_F(SnapshotDirectoryTest, ARollbackRemovesNoBadOne) {
  for (uint64_t steps = 1; steps <= 5; ++steps) {
    ASSERT_TRUE(WriteSnapshot(*ShardAfter(steps), directory_).ok());
  }
  ASSERT_TRUE(disk_.FlipBit("snapshot-0000000000000005.meta", 1000).ok());
  SnapshotDirectory restarted(disk_, kSnapshotId);
  ASSERT_TRUE(restarted.RemoveBetween(3, 7).ok());
  EXPECT_EQ(*restarted.List(), (std::vector<uint64_t>{7, 5, 3}));
}

// P18: one is removed or it is bad, but none is left because it could not be read.
TEST_F(SnapshotDirectoryTest, RetentionEndsWhereTheDeviceFails) {
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(WriteSnapshot(*ShardAfter(step), directory_).ok());
  }
  uint64_t failed = 0;
  for (uint64_t operations = 0;; ++operations) {
    SnapshotDirectory restarted(disk_, kSnapshotId);
    restarted.SetWhole(5);
    restarted.SetWhole(4);
    disk_.FailAfter(operations);
    const absl::Status status = restarted.Retain();
    disk_.SetHealthy();
    if (status.ok()) break;
    EXPECT_TRUE(disk::IsDeviceError(status)) << status;
    ++failed;
  }
  EXPECT_GE(failed, 6u);
  EXPECT_EQ(*directory_.List(), (std::vector<uint64_t>{5, 4}));
}

// A crash or a power cut at any disk operation leaves the previous snapshot (P9, T5). The new one
// exists whole or not at all; a reported one exists.
TEST_F(SnapshotDirectoryTest, TheOldOneIsThereAndTheNewOneWholeOrNot) {
  const std::unique_ptr<DrivenShard> before = ShardAfter(2);
  const std::unique_ptr<DrivenShard> after = ShardAfter(3);
  int cuts = 0;
  int found_new = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    bool finished = false;
    for (uint64_t operations = 0; !finished; ++operations) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", stopped after ", operations, " operations"));
      SimulatedDirectory disk("/d", seed * 1000 + operations);
      SnapshotDirectory directory(disk, kSnapshotId);
      ASSERT_TRUE(WriteSnapshot(*before, directory).ok());
      disk.FailAfter(operations);
      finished = WriteSnapshot(*after, directory).ok();
      disk.SetHealthy();
      if (seed % 4 == 0) {
        disk.Crash();
      } else {
        disk.CutPower();
      }
      ++cuts;
      SnapshotDirectory restarted(disk, kSnapshotId);
      ASSERT_TRUE(restarted.Verify(4).ok());
      const bool listed = restarted.List()->front() == 5;
      ASSERT_TRUE(listed || !finished);
      if (listed) {
        ASSERT_TRUE(restarted.Verify(5).ok()) << restarted.Verify(5);
        ++found_new;
      }
      // The snapshot can be written again.
      if (!listed) {
        ASSERT_TRUE(WriteSnapshot(*after, restarted).ok());
        ASSERT_TRUE(restarted.Verify(5).ok());
      }
    }
  }
  std::cout << cuts << " cuts, " << found_new << " found the new snapshot" << std::endl;
  EXPECT_GT(cuts, 50);
}

TEST_F(SnapshotDirectoryTest, AFullDiskLeavesTheOldOneAndIsGoneOnFrom) {
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(2), directory_).ok());
  for (uint64_t room = 0; room < 5000; room += 499) {
    disk_.SetFreeBytes(room);
    const absl::Status status = WriteSnapshot(*ShardAfter(3), directory_);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "/d/snapshot-0000000000000005")) << status;
    ASSERT_TRUE(directory_.RemoveUnfinished().ok());
    EXPECT_EQ(Names().size(), 2u);
  }
  disk_.SetUnbounded();
  ASSERT_TRUE(WriteSnapshot(*ShardAfter(3), directory_).ok());
  EXPECT_TRUE(directory_.Verify(5).ok());
}

}  // namespace
}  // namespace kaon::shard
