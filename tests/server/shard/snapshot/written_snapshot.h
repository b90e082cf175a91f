// Writes snapshots of a DrivenShard and reads them back at once. Free functions; one thread.
#ifndef KAON_TESTS_SERVER_SHARD_SNAPSHOT_WRITTEN_SNAPSHOT_H_
#define KAON_TESTS_SERVER_SHARD_SNAPSHOT_WRITTEN_SNAPSHOT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot_restore.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {

inline constexpr journal::DirectoryId kSnapshotId = {0x1111222233334444, 0x5555666677778888};

// Writes a snapshot of the shard's present state.
absl::Status WriteSnapshot(DrivenShard& shard, SnapshotDirectory& directory);

// Restores the newest snapshot into a new shard, which replaces `*shard`.
absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               std::unique_ptr<DrivenShard>* shard);

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_SNAPSHOT_WRITTEN_SNAPSHOT_H_
