// A checkpoint that was found and read whole, for a job to go on from. Plain values; the thread
// that reads checkpoints hands them to the state machine's thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORE_ORDER_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORE_ORDER_H_

#include <memory>
#include <string>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/checkpoint.pb.h"

namespace kaon::coordinator {

struct RestoreOrder {
  v1::RestoreCheckpointRequest request;
  // The call's answer and the machine share the manifest, which may be large.
  std::shared_ptr<const v1::CheckpointManifest> manifest;
  // SHA-256 of the manifest's file.
  std::string manifest_sha256;
  // Timeline of the job when its log did not hold the request; 0 if the log was not read.
  uint64_t timeline = 0;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_RESTORE_ORDER_H_
