// Snapshots as targets of a rollback. Free functions; one thread at a time per directory.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::shard {

// Returns the point of `state`, which has an applied record.
v1::SnapshotPoint PointOf(const v1::ShardState& state);

// Returns the points of snapshot `newest`, which is whole, and of earlier ones, oldest first. Reads
// no tensors. Skips a damaged snapshot and names it in the log, but returns an error of the device.
// Skips states outside the job's history: those between a rollback and its target, and those before
// a restore.
absl::StatusOr<std::vector<v1::SnapshotPoint>> ListPoints(SnapshotDirectory& directory,
                                                          uint64_t newest);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_
