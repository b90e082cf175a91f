// Finds the newest whole snapshot of a data_dir and loads it into a shard. Free functions, called
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
  // All numbers are 0 without a snapshot.
  uint64_t position = 0;
  uint64_t step = 0;
  // Timeline of the job when the snapshot was taken.
  uint64_t timeline = 0;
  // Position that the timeline was rolled back to, if this is the first snapshot of a timeline that
  // began so; else 0.
  uint64_t rolled_back_to = 0;
  // The snapshot is that of a job's deletion.
  bool no_job = false;
  // Bytes of the snapshot's files with tensors.
  uint64_t bytes = 0;
  // Reasons why newer snapshots were not used, naming file and both values. Their files stay.
  std::vector<std::string> skipped;
};

// Calls ShardCore::Restore on a core that has seen nothing yet.
using RestoreShard =
    std::function<absl::Status(const Snapshot& snapshot, const ShardCore::ReadTensor& read)>;

// Calls `restore` with whole snapshots, newest first, until it returns OK. Returns
// RESOURCE_EXHAUSTED (too little memory) and errors of the device without trying an older snapshot:
// no snapshot is at fault. A core whose `restore` failed is useless.
absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               const RestoreShard& restore);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_RESTORE_H_
