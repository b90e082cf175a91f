// What a coordinator's state machine is made with, and what it shows of itself. Plain values; any
// thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/coordinator.pb.h"
#include "server/coordinator/machine/membership.h"

namespace kaon::coordinator {

struct StepMachineOptions {
  // How workers reach this coordinator, host:port; told to the shards with every message.
  std::string address;
  // host:port of every shard; the order is the shards' identity. At least one.
  std::vector<std::string> shard_addresses;
  // 128 random bits of this process: two coordinators, or two lives of one, never share them.
  uint64_t incarnation_high = 0;
  uint64_t incarnation_low = 0;
  uint64_t seed = 0;
  absl::Duration heartbeat = absl::Milliseconds(100);
  absl::Duration takeover = absl::Milliseconds(500);
  // There is a directory for them; and one is taken each time so many train steps are applied,
  // 0 = never.
  bool takes_checkpoints = false;
  uint64_t checkpoint_every_steps = 0;
  // A checkpoint is given up once no shard has written anything more of it for so long.
  absl::Duration checkpoint_patience = absl::Minutes(10);
  // Bytes of state one shard may hold, for placement; 0 = unbounded.
  uint64_t shard_capacity_bytes = 0;
};

// What Admin.GetStatus shows of a coordinator.
struct CoordinatorSnapshot {
  bool holder = false;
  // The believed holder: this coordinator's own address when it holds; empty if unknown.
  std::string holder_address;
  v1::Ballot ballot;
  // The job, once registered, its stop reason included.
  std::optional<v1::JobDescription> job;
  std::vector<WorkerSnapshot> workers;
  std::string phase;
  // By shard: why it takes no part; empty if it does.
  std::vector<std::string> shard_problems;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_STEP_MACHINE_OPTIONS_H_
