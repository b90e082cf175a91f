// What a shard without its threads and its network is made with, and what it has its owner do.
// Plain values, set before the ShardCore is made; which thread calls what is said of each.
#ifndef KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
#define KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

struct ShardCoreOptions {
  // Both outlive the core.
  tier::TieredStore* store = nullptr;
  kernels::Backend* backend = nullptr;
  // Who computes, as files say it and as it is shown: build, backend and device_class.
  v1::CheckpointFile written_by;
  // Of the cpu backend, as they are shown: DescribeShardResponse.
  std::string instruction_set;
  uint32_t compute_threads = 0;
  // Called at the end of the replay of a shard that holds no job: what a coordinator chooses forms
  // by. Null: nothing is measured.
  std::function<std::vector<v1::NewtonSchulzFormTime>()> measure_forms;
  // Gradients that may wait for an earlier rank, all workers together.
  uint64_t staging_bytes = 64 << 20;
  // As in GradientAccumulator::Options.
  uint64_t min_chunk_bytes = 0;
  // Train steps in which all of the state in memory is reread once (P11).
  uint64_t scrub_steps = 64;
  // Why the shard lost the state it once held; empty if it did not.
  std::string data_loss;
  // What survives a restart, as it is shown.
  v1::DurabilityMode durability = v1::DURABILITY_MODE_NONE;
  // Steps that a restart loses at most in mode INTERVAL; else 0.
  uint32_t interval_steps = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_CORE_OPTIONS_H_
