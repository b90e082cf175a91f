// What a shard writes into a checkpoint: a frozen state, tensor by tensor, while the shard goes on.
// A pure function but for the files; called by the thread that owns the freeze.
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
  // Of the checkpoint, and of this attempt to write it.
  std::string id;
  uint64_t attempt = 0;
  // What the state was computed with.
  std::string backend;
  // Told how many bytes of tensors are written so far; an error ends the writing with it. May be
  // null.
  std::function<absl::Status(uint64_t written_bytes)> progress;
};

// Everything the part names is durable when it returns. The codes of PartWriter, StateFreeze::Read
// and `progress`; no file that it made is left then, unless it cannot be removed.
absl::StatusOr<v1::CheckpointPart> WriteCheckpointPart(StateFreeze& freeze, disk::Directory& files,
                                                       const PartOptions& options);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_CHECKPOINT_PART_H_
