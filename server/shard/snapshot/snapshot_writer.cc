#include "server/shard/snapshot/snapshot_writer.h"

#include <optional>
#include <utility>

#include "proto/failpoint.h"
#include "proto/status_macros.h"

namespace kaon::shard {

SnapshotWriter::SnapshotWriter(SnapshotDirectory& directory, std::unique_ptr<StateFreeze> freeze)
    : directory_(directory), freeze_(std::move(freeze)) {}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Create(
    SnapshotDirectory& directory, std::unique_ptr<StateFreeze> freeze,
    const v1::CheckpointFile& written_by) {
  KAON_RETURN_IF_ERROR(directory.RemoveUnfinished());
  std::unique_ptr<SnapshotWriter> writer(new SnapshotWriter(directory, std::move(freeze)));
  KAON_ASSIGN_OR_RETURN(writer->writer_,
                        FrozenPartWriter::Create(directory.files(), *writer->freeze_,
                                                 SnapshotDirectory::IdOf(writer->position()),
                                                 std::nullopt, written_by));
  return writer;
}

absl::Status SnapshotWriter::Commit() {
  KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part, writer_->Finish());
  PassFailpoint(Failpoint::snapshot_files_durable);
  for (const v1::CheckpointFile& file : part.files()) file_bytes_ += file.size();
  return directory_.Commit({directory_.id(), freeze_->facts(), std::move(part)});
}

}  // namespace kaon::shard
