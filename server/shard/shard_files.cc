#include "server/shard/shard_files.h"

#include <optional>

#include "proto/status_macros.h"
#include "server/disk/posix_directory.h"
#include "server/journal/identity_file.h"

namespace kaon::shard {

absl::StatusOr<std::unique_ptr<disk::Directory>> ShardFiles::OpenCheckpoints() const {
  if (!checkpoint_dir.empty()) return disk::PosixDirectory::At(checkpoint_dir);
  return absl::FailedPreconditionError("this shard has no checkpoint directory");
}

absl::Status ShardFiles::WithSnapshots(ShardHost::UseSnapshots use) const {
  if (snapshot_dir.empty()) {
    return absl::InvalidArgumentError("this shard keeps no snapshots to roll back to");
  }
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<disk::PosixDirectory> files,
                        disk::PosixDirectory::At(snapshot_dir));
  KAON_ASSIGN_OR_RETURN(const std::optional<journal::DirectoryId> id,
                        journal::ReadIdentity(*files));
  SnapshotDirectory directory(*files, id.value_or(journal::DirectoryId()));
  return use(directory);
}

}  // namespace kaon::shard
