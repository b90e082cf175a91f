// Writes a shard's part of a checkpoint from a frozen state, tensor by tensor, while the shard
// continues. Its only side effects are the files. Called by the thread that owns the freeze.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_PART_H_
#define KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_PART_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"
#include "server/shard/snapshot/state_freeze.h"

namespace kaon::shard {

struct PartOptions {
  // Identify the checkpoint and this attempt to write it.
  std::string id;
  uint64_t attempt = 0;
  // Build, backend and device class that computed the state.
  v1::CheckpointFile written_by;
  // Reports bytes of tensors written so far. If it returns an error, writing stops with that error.
  // May be null.
  std::function<absl::Status(uint64_t written_bytes)> progress;
};

// Writes the part and returns once everything in it is durable. Errors are those of PartWriter,
// StateFreeze::Read and `progress`. After an error, removes the files it made, if they can be
// removed.
absl::StatusOr<v1::CheckpointPart> WriteCheckpointPart(StateFreeze& freeze, disk::Directory& files,
                                                       const PartOptions& options);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_PART_H_
