// Where a coordinator's state machine stands, and what it has heard of one shard. Plain values;
// owned by StepMachine.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::coordinator {

// In the order in which a coordinator goes through them.
enum class MachinePhase {
  // Another coordinator may hold the shards; probing.
  kStandby,
  // A ballot is taken; its promise is asked of every shard.
  kReading,
  // `record_` is decided and not yet applied by every shard.
  kApplying,
  // Every shard has applied `position_`; waiting for workers or a registration.
  kReady,
  // `plan_` is open at position_ + 1; collecting its PREPAREs.
  kRound,
};

struct ShardView {
  bool connected = false;
  // What its newest stream ended with.
  absl::Status ended;
  // Why it does not answer to what is open.
  std::string obstacle;
  absl::Time heard = absl::InfinitePast();
  absl::Duration silence;  // As of the newest tick; 0 once it is heard again.
  // Answer to this ballot's promise.
  std::optional<v1::ShardState> state;
  // PREPARE of exactly `plan_`.
  std::optional<v1::Prepared> prepared;
  uint64_t applied_position = 0;

  // Another entry is open.
  void ForgetEntry() {
    prepared.reset();
    obstacle.clear();
  }
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_MACHINE_PHASE_H_
