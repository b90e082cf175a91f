// Writes a frozen state as this shard's part of a snapshot or of a checkpoint, piece by piece. Its
// owner decides when: a thread of its own, or the simulator's events. One thread at a time, which
// may differ from the step thread.
#ifndef KAON_SERVER_SHARD_SNAPSHOT_FROZEN_PART_WRITER_H_
#define KAON_SERVER_SHARD_SNAPSHOT_FROZEN_PART_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/part_writer.h"
#include "server/shard/snapshot/state_freeze.h"

namespace kaon::shard {

class FrozenPartWriter {
 public:
  // Starts part `id`; `attempt` as in PartWriter. `written_by` names the writing build. `directory`
  // and `freeze` outlive the writer. Errors are those of PartWriter::Create.
  static absl::StatusOr<std::unique_ptr<FrozenPartWriter>> Create(
      checkpoint::CheckpointDirectory& directory, StateFreeze& freeze, const std::string& id,
      std::optional<uint64_t> attempt, const v1::CheckpointFile& written_by);

  // Writes the next piece, at most 1 MiB. Returns false once nothing is left. After an error,
  // discard the part. Errors: RESOURCE_EXHAUSTED for a full disk, others of disk::File, and
  // CANCELLED of StateFreeze.
  absl::StatusOr<bool> WriteSome();
  // Bytes written, out of freeze.num_bytes().
  uint64_t written_bytes() const { return written_bytes_; }
  // DATA_LOSS naming the first tensor with a non-finite value among those written; else OK.
  const absl::Status& finite() const { return finite_; }

  // Like PartWriter::Finish.
  absl::StatusOr<v1::CheckpointPart> Finish() { return writer_->Finish(); }
  // Like PartWriter::Discard.
  void Discard() { writer_->Discard(); }

 private:
  FrozenPartWriter(StateFreeze& freeze, std::unique_ptr<checkpoint::PartWriter> writer);

  StateFreeze& freeze_;
  const std::unique_ptr<checkpoint::PartWriter> writer_;
  // Offset in the current tensor.
  uint64_t offset_ = 0;
  uint64_t written_bytes_ = 0;
  absl::Status finite_;
  std::string piece_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_FROZEN_PART_WRITER_H_
