// The phase of a coordinator's state machine, and what the machine has heard of each shard. Plain
// values; owned by StepMachine.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::coordinator {

// The values are in the order in which a coordinator goes through them.
enum class MachinePhase {
  // Another coordinator may hold the shards; the machine probes them.
  kStandby,
  // The machine took a ballot and waits for every shard to promise it.
  kReading,
  // The newest record is decided and not yet applied by every shard.
  kApplying,
  // Every shard has applied the newest record; the machine waits for workers or a registration.
  kReady,
  // A plan is open at the next position; the machine collects its PREPAREs.
  kRound,
};

struct ShardView {
  bool connected = false;
  // Status that the shard's newest stream ended with.
  absl::Status ended;
  // Why the shard does not answer the open entry.
  std::string obstacle;
  absl::Time heard = absl::InfinitePast();
  // Time since the shard was heard, as of the newest tick; 0 once it is heard again.
  absl::Duration silence;
  // Answer to the promise of the machine's ballot.
  std::optional<v1::ShardState> state;
  // PREPARE of exactly the open plan.
  std::optional<v1::Prepared> prepared;
  uint64_t applied_position = 0;

  // Drops the answers to an entry that is no longer open.
  void ForgetEntry() {
    prepared.reset();
    obstacle.clear();
  }
};

// Returns the states by shard; an empty state for a shard that was not read.
inline std::vector<v1::ShardState> StatesOf(const std::vector<ShardView>& shards) {
  std::vector<v1::ShardState> states;
  for (const ShardView& view : shards) states.push_back(view.state.value_or(v1::ShardState()));
  return states;
}

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_
