#include "tests/server/shard/snapshot/written_snapshot.h"

#include <utility>

#include "proto/status_macros.h"
#include "server/shard/snapshot/snapshot_writer.h"

namespace kaon::shard {

absl::Status WriteSnapshot(DrivenShard& shard, SnapshotDirectory& directory) {
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<StateFreeze> freeze, shard.core().Freeze());
  v1::CheckpointFile written_by;
  written_by.set_build("test");
  KAON_ASSIGN_OR_RETURN(const std::unique_ptr<SnapshotWriter> writer,
                        SnapshotWriter::Create(directory, std::move(freeze), written_by));
  bool more = true;
  while (more) {
    KAON_ASSIGN_OR_RETURN(more, writer->WriteSome());
  }
  return writer->Commit();
}

absl::StatusOr<RestoredSnapshot> RestoreNewest(SnapshotDirectory& directory,
                                               std::unique_ptr<DrivenShard>* shard) {
  *shard = std::make_unique<DrivenShard>();
  return RestoreNewest(directory,
                       [shard](const Snapshot& snapshot, const ShardCore::ReadTensor& read) {
                         *shard = std::make_unique<DrivenShard>();
                         return (*shard)->core().Restore(snapshot.facts, snapshot.part, read);
                       });
}

}  // namespace kaon::shard
