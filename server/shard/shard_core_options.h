// Options of a ShardCore. Plain values, set before the core is made.
#ifndef KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
#define KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/state_tier.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

struct ShardCoreOptions {
  // All pointers outlive the core. The backend computes on the memory of the store.
  tier::TieredStore* store = nullptr;
  kernels::Backend* backend = nullptr;
  // Gets the parameters that find no room in the store's memory; null: there must be room.
  tier::NvmeTier* nvme = nullptr;
  // Size in bytes of the file system that has its file, as the shard shows it.
  uint64_t nvme_disk_bytes = 0;
  // Budget of the host memory that a device's gradients are journaled from; null: they are not. Not
  // used where the backend computes on the host.
  tier::StateTier* staging = nullptr;
  // Budget of the host memory that pulls of a device's weights share; null: each pull copies out of
  // the device. Not used where the backend computes on the host.
  tier::StateTier* pull_cache = nullptr;
  // Build, backend and device class, as the shard writes them into files and shows them.
  v1::CheckpointFile written_by;
  // Facts of the cpu backend, which DescribeShardResponse shows.
  std::string instruction_set;
  uint32_t compute_threads = 0;
  // Bytes of gradients that may wait for an earlier rank, all workers together.
  uint64_t staging_bytes = 64 << 20;
  // Fewest bytes of a chunk that does not end its parameter.
  uint64_t min_chunk_bytes = 0;
  // Number of train steps in which the scrub rereads all of the state in memory once (P11).
  uint64_t scrub_steps = 64;
  // Why the shard lost the state it once held; empty if it did not.
  std::string data_loss;
  // Durability that the shard shows: it decides what survives a restart.
  v1::DurabilityMode durability = v1::DURABILITY_MODE_NONE;
  // Most steps that a restart loses in mode INTERVAL; 0 in other modes.
  uint32_t interval_steps = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
