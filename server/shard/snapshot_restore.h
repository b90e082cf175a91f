// Finds the newest whole snapshot of a data_dir and puts it into a shard. Free functions, called
// while a shard starts; one thread.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_RESTORE_H_
#define KAON_SERVER_SHARD_SNAPSHOT_RESTORE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/shard_core.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::shard {

struct RestoredSnapshot {
  // All 0 if there was none.
  uint64_t position = 0;
  uint64_t step = 0;
  // Of the job, as it was then.
  uint64_t timeline = 0;
  // Of what it was rolled back to, if it is the first of a timeline that began so; else 0.
  uint64_t rolled_back_to = 0;
  // Of its files with tensors.
  uint64_t bytes = 0;
  // Why newer ones were not used, naming file and both values. They are left where they are.
  std::vector<std::string> skipped;
};

// ShardCore::Restore on a core that has seen nothing yet.
using RestoreShard =
    std::function<absl::Status(const Snapshot& snapshot, const ShardCore::ReadTensor& read)>;

// Calls `restore` with whole snapshots, newest first, until it returns OK. Memory that is too small
// (RESOURCE_EXHAUSTED) and errors of the device are no fault of a snapshot: they are returned, and
// no older one is taken. A core that it was called for in vain is useless.
absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               const RestoreShard& restore);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_RESTORE_H_
