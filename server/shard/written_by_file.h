// The file `written_by` of a shard's data_dir: whose bits its journal goes on with, from the first
// start on, when no snapshot says so yet. One thread at a time.
#ifndef KAON_SERVER_SHARD_WRITTEN_BY_FILE_H_
#define KAON_SERVER_SHARD_WRITTEN_BY_FILE_H_

#include "absl/status/status.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/disk/disk.h"

namespace kaon::shard {

inline constexpr char kWrittenByFile[] = "written_by";

// Writes it, durably, where it is missing, as directories of older versions have none; or says
// something else and `allow_other`. FAILED_PRECONDITION naming the file, what it says and build,
// backend and device class of `present`, if it says something else: nothing changes then. Errors of
// the device.
absl::Status ClaimDirectory(disk::Directory& directory, const v1::CheckpointFile& present,
                            bool allow_other);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_WRITTEN_BY_FILE_H_
