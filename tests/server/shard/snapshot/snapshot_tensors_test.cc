#include "server/shard/snapshot/snapshot_tensors.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/server/shard/driven_shard.h"
#include "tests/server/shard/snapshot/written_snapshot.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::shard {
namespace {

TEST(SnapshotTensorsTest, ReadsEveryTensorAndNamesTheFileOfADamagedOne) {
  simulation::SimulatedDirectory disk("/d", 1);
  SnapshotDirectory directory(disk, kSnapshotId);
  DrivenShard shard;
  shard.Load();
  ASSERT_TRUE(WriteSnapshot(shard, directory).ok());
  const Snapshot snapshot = directory.Load(2).value();
  const auto read = [&](const v1::CheckpointTensor& tensor) -> absl::StatusOr<std::string> {
    SnapshotTensors tensors(directory, snapshot);
    std::string bytes(checkpoint::StateBytes(tensor.dtype(), tensor.num_elements()), ' ');
    const absl::Status status = tensors.Read(tensor, 0, absl::MakeSpan(bytes));
    if (!status.ok()) return status;
    return bytes;
  };
  int weights = 0;
  for (const v1::CheckpointTensor& tensor : snapshot.part.tensors()) {
    const absl::StatusOr<std::string> bytes = read(tensor);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    if (tensor.role() != checkpoint::kWeightRole) continue;
    const std::vector<float> expected = shard.Read(tensor.parameter_id(), 0);
    EXPECT_EQ(*bytes, std::string(reinterpret_cast<const char*>(expected.data()), bytes->size()));
    ++weights;
  }
  EXPECT_EQ(weights, 3);
  const v1::CheckpointFile& file = snapshot.part.files(0);
  ASSERT_TRUE(disk.FlipBit(file.name(), 8 * file.size() - 3).ok());
  const absl::Status damaged = read(snapshot.part.tensors(0)).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(damaged.message(), file.name())) << damaged;
}

}  // namespace
}  // namespace kaon::shard
