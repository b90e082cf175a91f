// Directories that a shard reads apart from its journal: checkpoints, and its own snapshots. A
// value; StepLoop and ShardServer each hold a copy. Any thread.
#ifndef KAON_SERVER_SHARD_SHARD_FILES_H_
#define KAON_SERVER_SHARD_SHARD_FILES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/disk/disk.h"
#include "server/shard/shard_host.h"

namespace kaon::shard {

struct ShardFiles {
  // Directory of checkpoints; empty: the shard has none.
  std::string checkpoint_dir;
  // Directory of the snapshots that a rollback may load; empty outside mode INTERVAL.
  std::string snapshot_dir;

  // Implements ShardHost::OpenCheckpoints.
  absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() const;
  // Implements ShardHost::WithSnapshots.
  absl::Status WithSnapshots(ShardHost::UseSnapshots use) const;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SHARD_FILES_H_
