// Which checkpoint a restore takes. A free function; called by the thread that has the directory.
#ifndef KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_
#define KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/machine/restore_order.h"

namespace kaon::coordinator {

// What a restore would take, read whole, and what it passed over.
struct FoundRestore {
  RestoreOrder order;
  std::vector<checkpoint::SkippedCheckpoint> skipped;
};

// The one that the request names, or the newest good one. It stays, whatever becomes of the power:
// shards read it again when they restart. NOT_FOUND naming those that are not good,
// FAILED_PRECONDITION for one that is being removed, and the codes of CheckpointDirectory::Verify.
absl::StatusOr<FoundRestore> FindCheckpoint(checkpoint::CheckpointDirectory& directory,
                                            const v1::RestoreCheckpointRequest& request);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_
