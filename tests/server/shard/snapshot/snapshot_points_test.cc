#include "server/shard/snapshot/snapshot_points.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/disk/device_error.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

// Snapshots of positions 3, 4 and 5.
class SnapshotPointsTest : public testing::Test {
 protected:
  SnapshotPointsTest() {
    shard_.Load();
    for (uint64_t step = 1; step <= 3; ++step) {
      shard_.Train(step, {{0.5, -1, 2, 0.25, -0.5, 1}, {1, -2, 3, -4}});
      EXPECT_TRUE(WriteSnapshot(shard_, directory_).ok());
    }
  }

  // Makes `plan` the last plan before the snapshot of `position`.
  void Rewrite(uint64_t position, const v1::StepPlan& plan) {
    Snapshot snapshot = directory_.Load(position).value();
    *snapshot.facts.state.mutable_applied_record()->mutable_plan() = plan;
    snapshot.facts.state.mutable_applied_record()->mutable_plan()->set_position(position);
    ASSERT_TRUE(directory_.Commit(snapshot).ok());
  }
  std::vector<uint64_t> Positions(uint64_t newest) {
    std::vector<uint64_t> positions;
    const std::vector<v1::SnapshotPoint> points = ListPoints(directory_, newest).value();
    for (const v1::SnapshotPoint& point : points) {
      positions.push_back(point.position());
    }
    return positions;
  }

  simulation::SimulatedDirectory disk_{"/d", 1};
  SnapshotDirectory directory_{disk_, kSnapshotId};
  DrivenShard shard_;
};

TEST_F(SnapshotPointsTest, OldestFirstUpToTheNewestWholeOne) {
  EXPECT_EQ(Positions(5), (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(Positions(4), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(Positions(0), (std::vector<uint64_t>{}));
  const v1::SnapshotPoint newest = ListPoints(directory_, 5)->back();
  EXPECT_EQ(newest.SerializeAsString(), PointOf(shard_.state()).SerializeAsString());
  EXPECT_EQ(newest.step(), 3u);
  EXPECT_EQ(newest.registration().definition().name(), "gpt2");
  // A bad one is left out.
  ASSERT_TRUE(disk_.FlipBit("snapshot-0000000000000004.meta", 99).ok());
  EXPECT_EQ(Positions(5), (std::vector<uint64_t>{3, 5}));
}

// P18: the content of a device that fails is unknown.
TEST_F(SnapshotPointsTest, NoneIsLeftOutBecauseItCannotBeRead) {
  uint64_t failed = 0;
  for (uint64_t operations = 0;; ++operations) {
    disk_.FailAfter(operations);
    const auto points = ListPoints(directory_, 5);
    disk_.SetHealthy();
    if (points.ok()) {
      EXPECT_EQ(points->size(), 3u);
      break;
    }
    EXPECT_TRUE(disk::IsDeviceError(points.status())) << points.status();
    ++failed;
  }
  EXPECT_GE(failed, 7u);
}

TEST_F(SnapshotPointsTest, WhatARollbackOrARestoreEndedIsLeftOut) {
  v1::StepPlan plan;
  plan.mutable_rollback()->mutable_target()->set_position(3);
  Rewrite(5, plan);
  EXPECT_EQ(Positions(5), (std::vector<uint64_t>{3, 5}));
  plan.mutable_restore();
  Rewrite(5, plan);
  EXPECT_EQ(Positions(5), (std::vector<uint64_t>{5}));
}

}  // namespace
}  // namespace kaon::shard
