// Mode interval(K): whether shards that restarted oblige their holder to take the job back, and to
// which state (protocol.md 2.2 and 3). Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_ROLLBACK_CHOICE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_ROLLBACK_CHOICE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"

namespace kaon::coordinator {

struct RollbackChoice {
  // DATA_LOSS naming what each shard has, when there is no common state.
  absl::Status stop;
  // Shards whose first snapshot of the timeline is still on its way: nothing is lost, and they are
  // to be read again.
  std::vector<int> wait_for;
  // Else: the plan, but for ballot and round.
  std::optional<v1::StepPlan> plan;
};

// `states` by shard, one of which at least needs a rollback and none of which holds a decided one.
RollbackChoice ChooseRollback(const std::vector<v1::ShardState>& states);

// Restore or rollback: it replaces the state, wherever the shard stood.
bool TakesBack(const v1::StepPlan& plan);

// FAILED_PRECONDITION naming two shards and their modes: what one of them forgets, the other would
// wait for.
absl::Status CheckSameDurability(const std::vector<v1::ShardState>& states);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_ROLLBACK_CHOICE_H_
