// A checkpoint that was found and read whole, and whose state a job is to take. Plain values; the
// thread that reads checkpoints hands them to the state machine's.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_RESTORE_ORDER_H_
#define KAON_SERVER_COORDINATOR_MACHINE_RESTORE_ORDER_H_

#include <memory>
#include <string>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/coordinator/machine/actions.h"

namespace kaon::coordinator {

struct RestoreOrder {
  v1::RestoreCheckpointRequest request;
  // Shared by the call's answer and the machine: it may be large.
  std::shared_ptr<const v1::CheckpointManifest> manifest;
  // Of the manifest's file.
  std::string manifest_sha256;
  // Of the job when its log did not hold the request; 0 = it was not looked for there.
  uint64_t timeline = 0;
};

// The one that waits: for the boundary, or for its entry to be applied.
struct PendingRestore {
  CallId call = 0;
  RestoreOrder order;
  bool planned = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_RESTORE_ORDER_H_
