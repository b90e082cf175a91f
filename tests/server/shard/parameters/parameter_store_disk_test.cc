#include <gtest/gtest.h>

#include <memory>

#include "server/shard/parameters/parameter_store.h"
#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/tiered_store.h"
#include "tests/server/shard/agreement/plans.h"
#include "tests/server/shard/device/shard_memory.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::shard {
namespace {

// Memory that has room for the state alone keeps that, and weights go to the disk.
TEST(ParameterStoreDiskTest, KeepsStateInMemoryWhereWeightsFindNoRoom) {
  ShardMemory memory(1 << 16);
  const v1::RegisterBody registration = MakeRegistration();
  simulation::SimulatedDirectory disk("/nvme", 1);
  const auto file = *simulation::SimulatedBlockFile::Open(disk, "state", 1 << 20);
  disk::BlockFile* const files[] = {file.get()};
  tier::NvmeTier nvme(files, memory.backend(), 1 << 20);
  uint64_t workspace = 0;
  {
    const auto parameters =
        *ParameterStore::Create({memory.store(), &nvme}, memory.backend(), registration, 0, 1);
    const uint64_t tensors = memory.store().used_bytes();
    ASSERT_TRUE(parameters->ReserveWorkspace().ok());
    workspace = memory.store().used_bytes() - tensors;
    EXPECT_EQ(nvme.used_bytes(), 0u);
  }
  tier::HostTier small(workspace + 3 * ShardMemory::least_extent());
  tier::TieredStore store(small);
  const auto parameters =
      *ParameterStore::Create({store, &nvme}, memory.backend(), registration, 0, 1);
  ASSERT_TRUE(parameters->ReserveWorkspace().ok());
  EXPECT_EQ(store.used_bytes(), store.capacity_bytes());
  for (const StoredParameter& parameter : parameters->parameters()) {
    EXPECT_EQ(parameter.place.home, &nvme) << parameter.name;
    EXPECT_FALSE(parameter.HasInMemory(0)) << parameter.name;
    for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
      EXPECT_TRUE(parameter.HasInMemory(i + 1)) << parameter.name << " " << i;
    }
  }
  // Two versions of the weights of three parameters, a block each.
  EXPECT_EQ(nvme.used_bytes(), 6 * disk::kBlockBytes);
  EXPECT_EQ(parameters->OnDisk().size(), 3u);
}

}  // namespace
}  // namespace kaon::shard
