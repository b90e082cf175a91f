// Writes a frozen state as this shard's part of a snapshot or of a checkpoint, piece by piece, so
// that whoever owns it decides when: a thread of its own, or the simulator's events. One thread at
// a time, another one than the step's if it likes.
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
  // As `id`, and `attempt` as PartWriter has it; who writes is in `written_by`. `directory` and
  // `freeze` outlive the writer. Codes of PartWriter::Create.
  static absl::StatusOr<std::unique_ptr<FrozenPartWriter>> Create(
      checkpoint::CheckpointDirectory& directory, StateFreeze& freeze, const std::string& id,
      std::optional<uint64_t> attempt, const v1::CheckpointFile& written_by);

  // The next piece, a MiB at most. False once there is none. After an error the part is worth
  // nothing: RESOURCE_EXHAUSTED for a full disk, the other codes of disk::File, and CANCELLED of
  // StateFreeze.
  absl::StatusOr<bool> WriteSome();
  // Of freeze.num_bytes().
  uint64_t written_bytes() const { return written_bytes_; }
  // DATA_LOSS naming the first tensor so far with a value that is not finite.
  const absl::Status& finite() const { return finite_; }

  // As PartWriter::Finish.
  absl::StatusOr<v1::CheckpointPart> Finish() { return writer_->Finish(); }
  // As PartWriter::Discard.
  void Discard() { writer_->Discard(); }

 private:
  FrozenPartWriter(StateFreeze& freeze, std::unique_ptr<checkpoint::PartWriter> writer);

  StateFreeze& freeze_;
  const std::unique_ptr<checkpoint::PartWriter> writer_;
  // Of the tensor that is being written.
  uint64_t offset_ = 0;
  uint64_t written_bytes_ = 0;
  absl::Status finite_;
  std::string piece_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_SNAPSHOT_FROZEN_PART_WRITER_H_
