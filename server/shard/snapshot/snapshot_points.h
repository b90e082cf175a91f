// Snapshots as states that a job can be rolled back to. Free functions; one thread at a time for
// the same directory.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::shard {

// Of a state with an applied record.
v1::SnapshotPoint PointOf(const v1::ShardState& state);

// Of the snapshots of position `newest`, which is whole, and before, oldest first; their tensors
// are not read. A bad one is left out and named in the log (an error of the device is returned); so
// are states that are no part of the job's history any more: those between a rollback and its
// target, and those before a restore.
absl::StatusOr<std::vector<v1::SnapshotPoint>> ListPoints(SnapshotDirectory& directory,
                                                          uint64_t newest);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_POINTS_H_
