// Chooses the checkpoint that a restore loads. A free function; call it on the thread that owns the
// directory.
#ifndef KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_
#define KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/admin.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/coordinator/machine/requests/restore_order.h"

namespace kaon::coordinator {

// The checkpoint to restore, completely read, and the checkpoints that were skipped.
struct FoundRestore {
  RestoreOrder order;
  std::vector<checkpoint::SkippedCheckpoint> skipped;
};

// Returns the checkpoint that the request names, or else the newest good one. Makes its name
// durable, because shards read it again when they restart.
//   NOT_FOUND            no good checkpoint; names the bad ones
//   FAILED_PRECONDITION  the checkpoint is being removed
//   other codes          CheckpointDirectory::Verify
absl::StatusOr<FoundRestore> FindCheckpoint(checkpoint::CheckpointDirectory& directory,
                                            const v1::RestoreCheckpointRequest& request);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_CHECKPOINT_FIND_CHECKPOINT_H_
