// Mode interval(K): whether shards that restarted oblige their holder to roll the job back, and to
// which state (protocol.md 2.2 and 3). Pure functions; any thread. A rollback has no caller and
// nothing to remember: it follows from the states of the shards, which StepMachine owns.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ROLLBACKS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ROLLBACKS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/machine_phase.h"

namespace kaon::coordinator {

// Position and timeline of a log.
struct LogPoint {
  uint64_t position = 0;
  uint64_t timeline = 0;

  bool operator==(const LogPoint&) const = default;
};

// Returns the highest position and the highest timeline that any shard has applied or voted for.
LogPoint HighestPoint(const std::vector<v1::ShardState>& states);

struct RollbackChoice {
  // DATA_LOSS naming what each shard has, when there is no common state.
  absl::Status stop;
  // Shards whose first snapshot of the timeline is not durable yet. No state is lost; the holder
  // must read these shards again.
  std::vector<int> wait_for;
  // Otherwise the plan, but for ballot and round.
  std::optional<v1::StepPlan> plan;
};

// Chooses the newest state that every shard has a snapshot of. `states` are by shard: at least one
// needs a rollback and none holds a decided rollback.
RollbackChoice ChooseRollback(const std::vector<v1::ShardState>& states);

// Makes the holder read the shards `wait_for` again at the next heartbeat, under its ballot.
void WaitForSnapshots(const std::vector<int>& wait_for, std::vector<ShardView>& shards);

// Returns whether a shard still needs a rollback once every shard has applied `newest`. A shard
// that was behind a `newest` that replaces the state needs none any more, which this notes.
bool NeedRollbackAfter(const v1::StepPlan& newest, std::vector<ShardView>& shards);

// Returns whether `plan` is a restore or a rollback: it replaces the state of a shard at whatever
// position the shard stands.
bool TakesBack(const v1::StepPlan& plan);

// Returns whether `plan` takes the job back or deletes it. Shards that have forgotten their votes
// take part in such an entry: they need nothing of the state before.
bool ReplacesState(const v1::StepPlan& plan);

// FAILED_PRECONDITION naming two shards and their different modes: one shard would forget votes
// that the other one waits for.
absl::Status CheckSameDurability(const std::vector<v1::ShardState>& states);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ROLLBACKS_H_
