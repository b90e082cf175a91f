// The file `written_by` of a shard's data_dir: whose bits it goes on with, from the first start on.
// One thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
#define KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"

namespace kaon::shard {

inline constexpr char kWrittenByFile[] = "written_by";

// Whether the file is there; directories of older versions have none. FAILED_PRECONDITION naming
// it, what it says, and build, backend and device class of `present`, if it says something else.
absl::StatusOr<bool> IsClaimed(disk::Directory& directory, const v1::CheckpointFile& present);

// Writes it, durably: whole, or as it was.
absl::Status ClaimDirectory(disk::Directory& directory, const v1::CheckpointFile& present);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_DIRECTORY_CLAIM_H_
