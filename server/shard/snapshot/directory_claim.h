// The claim on a shard's data_dir. It names build, backend and device class, which compute the
// bits, and the durability mode. The file `written_by` has the former from the first start on;
// snapshots have all. One thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
#define KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "server/disk/disk.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::shard {

inline constexpr char kWrittenByFile[] = "written_by";

// Returns whether the file exists; directories of older versions have none. Returns
// FAILED_PRECONDITION if it differs from `present`, naming the file, its text, and the build,
// backend and device class of `present`.
absl::StatusOr<bool> IsClaimed(disk::Directory& directory, const v1::CheckpointFile& present);

// Writes the file durably and atomically.
absl::Status ClaimDirectory(disk::Directory& directory, const v1::CheckpointFile& present);

// Checks that `present` wrote the snapshot of this position, which tells even without the file.
// FAILED_PRECONDITION names both builds, or what else differs. A damaged snapshot passes.
absl::Status CheckBuild(SnapshotDirectory& directory, uint64_t position,
                        const v1::CheckpointFile& present);

// Checks that a shard of this durability wrote the snapshot of this position. FAILED_PRECONDITION
// names both modes. A damaged snapshot passes.
absl::Status CheckMode(SnapshotDirectory& directory, uint64_t position, v1::DurabilityMode mode,
                       uint32_t interval_steps);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
