// Writes one shard's part of a checkpoint: its tensors, in as many files as their headers need.
// Returns the report from which the coordinator builds the manifest. Not thread-safe. The shard's
// checkpoint owns it.
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
    // Part of the file names; absent if nobody else can be writing `id`.
    std::optional<uint64_t> attempt;
    // The caller sets shard, num_shards, job, timeline, position and both digests; the writer fills
    // in the rest.
    v1::CheckpointPart part;
    // The caller sets build, backend and device_class; the writer fills in the rest.
    v1::CheckpointFile written_by;
    uint64_t max_tensors_per_file = 1000;
  };

  // `tensors` are those of this shard; their file and offset are ignored. `directory` and `job`
  // must outlive the writer. INVALID_ARGUMENT names a tensor that is no parameter of `job`, or
  // appears twice.
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(
      CheckpointDirectory& directory, const v1::JobDefinition& job, Options options,
      std::vector<v1::CheckpointTensor> tensors);

  // Returns the tensor whose bytes come next; null once all are there.
  const v1::CheckpointTensor* tensor() const;

  // Appends the next bytes of tensor(), in pieces of any size. INVALID_ARGUMENT for more bytes than
  // are missing. After an error of disk::File the part is useless: call Discard.
  absl::Status Append(absl::string_view bytes);

  // Returns the shard's report; everything it names is durable. FAILED_PRECONDITION names a tensor
  // whose bytes are missing.
  absl::StatusOr<v1::CheckpointPart> Finish();

  // Removes the files that the writer made; the part must not have been reported. Leaves files that
  // cannot be removed.
  void Discard();

 private:
  PartWriter(CheckpointDirectory& directory, const v1::JobDefinition& job, Options options);

  // Returns the name of the next file.
  std::string NextName() const;
  // Opens the file of the next tensors, if any are left.
  absl::Status OpenFile();
  absl::Status CloseFile();

  CheckpointDirectory& directory_;
  const v1::JobDefinition& job_;
  const Options options_;
  v1::CheckpointPart part_;
  // Names of the files that this writer made.
  std::vector<std::string> made_;
  // Tensors of files that are not open yet, in the order of Create.
  std::deque<v1::CheckpointTensor> waiting_;
  // The open file, and its tensors in the order of their bytes; those before next_ are written.
  std::unique_ptr<SafetensorsWriter> file_;
  std::vector<v1::CheckpointTensor> tensors_;
  size_t next_ = 0;
  // Number of bytes of tensors_[next_].
  uint64_t written_bytes_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_PART_WRITER_H_
