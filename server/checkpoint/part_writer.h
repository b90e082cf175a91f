// Writes what one shard puts into a checkpoint: its tensors, in as many files as their headers
// need, and the report that the coordinator makes the manifest of. Owned by the shard's checkpoint;
// one thread at a time.
#ifndef KAON_SERVER_CHECKPOINT_PART_WRITER_H_
#define KAON_SERVER_CHECKPOINT_PART_WRITER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"

namespace kaon::checkpoint {

class PartWriter {
 public:
  struct Options {
    std::string id;
    // In the names of the files; absent where nobody else can be writing `id`.
    std::optional<uint64_t> attempt;
    // With shard, num_shards, job, timeline, position and both digests; the rest is filled in.
    v1::CheckpointPart part;
    // Who writes: build, backend and device_class; the rest is filled in.
    v1::CheckpointFile written_by;
    uint64_t max_tensors_per_file = 1000;
  };

  // `tensors` of this shard, whose file and offset are not read. INVALID_ARGUMENT naming one that
  // is no parameter of `job`, or is there twice. `directory` and `job` outlive the writer.
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      CheckpointDirectory& directory, const v1::JobDefinition& job, Options options,
      std::vector<v1::CheckpointTensor> tensors);

  // Whose bytes are appended next; null when all are there.
  const v1::CheckpointTensor* tensor() const;

  // The next bytes of tensor(), in pieces of any size. INVALID_ARGUMENT for more than it lacks; the
  // codes of disk::File, after which the part is worth nothing: Discard.
  absl::Status Append(absl::string_view bytes);

  // What the shard reports; everything it names is durable. FAILED_PRECONDITION naming a tensor
  // whose bytes are missing.
  absl::StatusOr<v1::CheckpointPart> Finish();

  // Removes the files that it made, of a part that nobody was told of. What cannot be removed is
  // left.
  void Discard();

 private:
  PartWriter(CheckpointDirectory& directory, const v1::JobDefinition& job, Options options);

  // Of the next file.
  std::string NextName() const;
  // Opens the file of the next tensors, if any are left.
  absl::Status OpenFile();
  absl::Status CloseFile();

  CheckpointDirectory& directory_;
  const v1::JobDefinition& job_;
  const Options options_;
  v1::CheckpointPart part_;
  // Names of the files that it made.
  std::vector<std::string> made_;
  // Of files that are not open yet, in the order of Create.
  std::deque<v1::CheckpointTensor> waiting_;
  // Of the open file, in the order of their bytes; those before next_ are written.
  std::unique_ptr<SafetensorsWriter> file_;
  std::vector<v1::CheckpointTensor> tensors_;
  size_t next_ = 0;
  // Of tensors_[next_].
  uint64_t written_bytes_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_PART_WRITER_H_
