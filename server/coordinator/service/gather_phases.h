// Asks every shard where the time of its steps went (`kaonctl steps --phases`). Any thread.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_GATHER_PHASES_H_
#define KAON_SERVER_COORDINATOR_SERVICE_GATHER_PHASES_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/admin.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/coordinator/shard_link.h"

namespace kaon::coordinator {

// Of the entries that `read` names; each shard has `timeout`, and one that does not answer in it,
// or has not come as far as they are, is left out. `done` runs once, on gRPC's threads, with those
// that answered ordered by shard. The links outlive the calls.
void GatherPhases(const std::vector<std::unique_ptr<ShardLink>>& links, v1::ReadHistoryRequest read,
                  absl::Duration timeout,
                  std::function<void(std::vector<v1::ShardPhases> phases)> done);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_GATHER_PHASES_H_
