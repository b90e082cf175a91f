// Asks every shard how long each phase of its steps took (`kaonctl steps --phases`). Any thread.
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

// Reads the phases of the entries that `read` names. Each shard has `timeout` to answer. The phases
// of a shard that does not answer, or has not reached those entries, have a problem. Calls `done`
// once, on a thread of gRPC, with the answers ordered by shard. `links` must outlive the calls.
void GatherPhases(const std::vector<std::unique_ptr<ShardLink>>& links, v1::ReadHistoryRequest read,
                  absl::Duration timeout,
                  std::function<void(std::vector<v1::ShardPhases> phases)> done);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_GATHER_PHASES_H_
