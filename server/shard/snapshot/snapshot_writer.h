// Writes one snapshot: the frozen tensors, piece by piece, then the file that makes it exist. Owned
// by whoever writes snapshots; one thread at a time.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_WRITER_H_
#define KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_WRITER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/shard/agreement/agreement_snapshot.h"
#include "server/shard/snapshot/frozen_part_writer.h"
#include "server/shard/snapshot/snapshot_directory.h"
#include "server/shard/snapshot/state_freeze.h"

namespace kaon::shard {

class SnapshotWriter {
 public:
  // What an interrupted writer left is removed first. `directory` outlives the writer.
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> Create(
      SnapshotDirectory& directory, std::unique_ptr<StateFreeze> freeze,
      const v1::CheckpointFile& written_by);

  uint64_t position() const { return freeze_->part().position(); }
  uint64_t step() const { return freeze_->facts().state.applied_step(); }
  const AgreementSnapshot& facts() const { return freeze_->facts(); }

  // As FrozenPartWriter.
  absl::StatusOr<bool> WriteSome() { return writer_->WriteSome(); }

  // Once nothing is left to write, and once the journal holds the decision of position() and all
  // before it durably: it must be able to go on from an older snapshot. As
  // SnapshotDirectory::Commit.
  absl::Status Commit();
  // Of the files with tensors; once it is committed.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  SnapshotWriter(SnapshotDirectory& directory, std::unique_ptr<StateFreeze> freeze);

  SnapshotDirectory& directory_;
  const std::unique_ptr<StateFreeze> freeze_;
  std::unique_ptr<FrozenPartWriter> writer_;
  uint64_t file_bytes_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_SNAPSHOT_WRITER_H_
