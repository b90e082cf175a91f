#include "server/shard/snapshot/checkpoint_part.h"

#include <memory>

#include "proto/failpoint.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/shard/snapshot/frozen_part_writer.h"

namespace kaon::shard {

namespace {

absl::StatusOr<v1::CheckpointPart> WriteAll(FrozenPartWriter& writer, const PartOptions& options) {
  for (bool more = true; more;) {
    KAON_ASSIGN_OR_RETURN(more, writer.WriteSome());
    KAON_RETURN_IF_ERROR(writer.finite());
    PassFailpoint(Failpoint::checkpoint_piece_written);
    if (options.progress != nullptr) KAON_RETURN_IF_ERROR(options.progress(writer.written_bytes()));
  }
  PassFailpoint(Failpoint::checkpoint_part_written);
  KAON_ASSIGN_OR_RETURN(v1::CheckpointPart part, writer.Finish());
  PassFailpoint(Failpoint::checkpoint_part_durable);
  return part;
}

}  // namespace

absl::StatusOr<v1::CheckpointPart> WriteCheckpointPart(StateFreeze& freeze, disk::Directory& files,
                                                       const PartOptions& options) {
  checkpoint::CheckpointDirectory directory(files);
  KAON_ASSIGN_OR_RETURN(
      const std::unique_ptr<FrozenPartWriter> writer,
      FrozenPartWriter::Create(directory, freeze, options.id, options.attempt, options.written_by));
  absl::StatusOr<v1::CheckpointPart> part = WriteAll(*writer, options);
  if (!part.ok()) writer->Discard();
  return part;
}

}  // namespace kaon::shard
