// The file `written_by` of a shard's data_dir: the build, backend and device class that compute its
// bits, from the first start on. One thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
#define KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"

namespace kaon::shard {

inline constexpr char kWrittenByFile[] = "written_by";

// Returns whether the file exists; directories of older versions have none. Returns
// FAILED_PRECONDITION if it differs from `present`, naming the file, its text, and the build,
// backend and device class of `present`.
absl::StatusOr<bool> IsClaimed(disk::Directory& directory, const v1::CheckpointFile& present);

// Writes the file durably and atomically.
absl::Status ClaimDirectory(disk::Directory& directory, const v1::CheckpointFile& present);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
