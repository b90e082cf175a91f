// Checks that a shard makes before it votes for a restore or a rollback. Free functions that read
// whole files; any thread.
#ifndef KAON_SERVER_SHARD_RESTORE_CHECK_H_
#define KAON_SERVER_SHARD_RESTORE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "server/checkpoint/restore_marks.h"
#include "server/disk/disk.h"
#include "server/shard/snapshot/snapshot_directory.h"

namespace kaon::shard {

// A restore as one shard checks it.
struct RestoreCheck {
  v1::RestoreBody restore;
  checkpoint::RestoreMark mark;
  uint32_t shard = 0;
};

// Marks the checkpoint in `files`, so that nobody removes it, then reads all of it that the restore
// places on the shard. DATA_LOSS or NOT_FOUND naming the file; INVALID_ARGUMENT naming a fact that
// differs from the restore; the errors of checkpoint::MarkRestore.
absl::Status CheckCheckpoint(disk::Directory& files, const RestoreCheck& check);

// Reads all of the snapshot that holds the state of `target`. DATA_LOSS or NOT_FOUND naming the
// file; INVALID_ARGUMENT if the snapshot holds another state.
absl::Status CheckSnapshot(SnapshotDirectory& directory, const v1::SnapshotPoint& target);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_RESTORE_CHECK_H_
