// Writes one snapshot: first the frozen tensors, piece by piece, then the .meta file that makes it
// exist. The caller owns it; one thread at a time.
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
  // Removes files of an interrupted writer first. `directory` outlives the writer.
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> Create(
      SnapshotDirectory& directory, std::unique_ptr<StateFreeze> freeze,
      const v1::CheckpointFile& written_by);

  uint64_t position() const { return freeze_->part().position(); }
  uint64_t step() const { return freeze_->facts().state.applied_step(); }
  const AgreementSnapshot& facts() const { return freeze_->facts(); }

  // Like FrozenPartWriter::WriteSome.
  absl::StatusOr<bool> WriteSome() { return writer_->WriteSome(); }

  // Makes the snapshot exist; errors are those of SnapshotDirectory::Commit. Requires that
  // WriteSome returned false. Also requires a journal that durably holds the decision of position()
  // and all before it, because recovery may start from an older snapshot.
  absl::Status Commit();
  // Size of the tensor files in bytes, after Commit.
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
