#include "server/shard/snapshot/snapshot_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

TEST(SnapshotWriterTest, ASnapshotExistsOnceItIsCommitted) {
  simulation::SimulatedDirectory disk("/d", 1);
  SnapshotDirectory directory(disk, kSnapshotId);
  // The writer first removes the remains of an interrupted snapshot.
  ASSERT_TRUE(disk.Create("snapshot-0000000000000001.meta.tmp").ok());
  DrivenShard shard;
  shard.Load();
  auto writer = SnapshotWriter::Create(directory, *shard.core().Freeze(), v1::CheckpointFile());
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_EQ((*writer)->position(), 2u);
  EXPECT_EQ((*writer)->step(), 0u);
  EXPECT_EQ((*writer)->Commit().code(), absl::StatusCode::kFailedPrecondition);
  while (*(*writer)->WriteSome()) {
  }
  EXPECT_TRUE((*directory.List()).empty());
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ(*directory.List(), std::vector<uint64_t>{2});
  EXPECT_TRUE(directory.Verify(2).ok());
  EXPECT_EQ((*disk.List()).size(), 2u);
}

// A shard may hold no parameter of the job. Its promise and position still need a snapshot.
TEST(SnapshotWriterTest, AShardWithoutParametersHasOneToo) {
  simulation::SimulatedDirectory disk("/d", 1);
  SnapshotDirectory directory(disk, kSnapshotId);
  DrivenShard shard;
  shard.PlaceAs(1, 2);
  v1::StepPlan registration = RegistrationPlan(1, 1);
  registration.mutable_registration()->mutable_placement()->set_num_shards(2);
  shard.Promise(1);
  shard.Plan(registration);
  shard.Decide(Applying(registration));
  shard.Plan(LoadPlan(1, 1));
  ASSERT_TRUE(shard.PushParameters(0, 0, {}).ok());
  shard.Pump();
  shard.Decide(Applying(LoadPlan(1, 1)));
  ASSERT_TRUE(shard.core().machine().weights_loaded());
  ASSERT_TRUE(WriteSnapshot(shard, directory).ok());
  std::unique_ptr<DrivenShard> restored;
  const absl::StatusOr<RestoredSnapshot> found = RestoreNewest(directory, &restored);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->position, 2u);
  EXPECT_EQ(restored->core().machine().shard(), 1u);
}

}  // namespace
}  // namespace kaon::shard
