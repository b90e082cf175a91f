// Works out the duties of a new holder from the states of all shards, read under one ballot
// (protocol.md 2.1 rules 3 and 5). A pure function; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_RECOVERY_H_
#define KAON_SERVER_COORDINATOR_MACHINE_RECOVERY_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/machine/rollbacks.h"

namespace kaon::coordinator {

struct Recovery {
  // DATA_LOSS naming the shard when the job cannot go on.
  absl::Status stop;
  // Set with DATA_LOSS if every shard can vote. No shard has applied or voted for an entry above
  // this point; a restore there makes the job go on.
  std::optional<LogPoint> restore_above;
  // A shard at the highest applied position.
  int newest = 0;
  // Shards that hold the PREPARE of the newest position and have not applied it: they need its
  // record.
  std::vector<int> behind;
  // Set when every shard holds the PREPARE of this plan at the next position: it must be decided.
  std::optional<v1::StepPlan> must_decide;
  // Mode INTERVAL: the rollback that must be planned, but for ballot and round. Before it can be
  // chosen: the shards that must be read again.
  std::optional<v1::StepPlan> rollback;
  std::vector<int> wait_for;
};

// `states` by shard; at least one.
Recovery Recover(const std::vector<v1::ShardState>& states);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_RECOVERY_H_
