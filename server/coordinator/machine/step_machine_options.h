// Options of a coordinator's state machine, and its snapshot. Plain values; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine/election.h"
#include "server/coordinator/machine/membership.h"
#include "server/coordinator/machine/placement.h"

namespace kaon::coordinator {

struct StepMachineOptions {
  // host:port for workers of this coordinator. Every message tells it to the shard.
  std::string address;
  // host:port of every shard, at least one; the order is the shards' identity.
  std::vector<std::string> shard_addresses;
  // 128 random bits of this process: two coordinators, or two lives of one, never share them.
  uint64_t incarnation_high = 0;
  uint64_t incarnation_low = 0;
  uint64_t seed = 0;
  absl::Duration heartbeat = absl::Milliseconds(100);
  absl::Duration takeover = absl::Milliseconds(500);
  // True if the coordinator has a checkpoint directory. Without one it takes no checkpoint.
  bool takes_checkpoints = false;
  // Train steps between two periodic checkpoints; 0 = never.
  uint64_t checkpoint_every_steps = 0;
  // A checkpoint is abandoned once no shard has made progress for so long.
  absl::Duration checkpoint_patience = absl::Minutes(10);
  // Bytes of state one shard may hold, for placement; 0 = unbounded.
  uint64_t shard_capacity_bytes = 0;
};

inline ElectionOptions ElectionOptionsOf(const StepMachineOptions& options) {
  ElectionOptions election;
  election.num_shards = static_cast<int>(options.shard_addresses.size());
  election.incarnation_high = options.incarnation_high;
  election.incarnation_low = options.incarnation_low;
  election.seed = options.seed;
  election.takeover = options.takeover;
  return election;
}

inline PlacementLimits LimitsOf(const StepMachineOptions& options) {
  PlacementLimits limits;
  limits.num_shards = static_cast<int>(options.shard_addresses.size());
  limits.shard_capacity_bytes = options.shard_capacity_bytes;
  return limits;
}

// The coordinator as Admin.GetStatus shows it.
struct CoordinatorSnapshot {
  bool holder = false;
  // Address of the believed holder: its own while it holds; empty if unknown.
  std::string holder_address;
  v1::Ballot ballot;
  // The job, with the reason it stopped; absent before the registration.
  std::optional<v1::JobDescription> job;
  // Position of the newest control entry, also without a job; 0 before the first.
  uint64_t config_revision = 0;
  std::vector<WorkerSnapshot> workers;
  std::string phase;
  // Reason by shard why it takes no part; empty if it does.
  std::vector<std::string> shard_problems;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_
