// Reads the state of a job out of a checkpoint, by parameter and element: who loads need not know
// how many shards wrote it, nor where its elements lie (protocol.md section 6). Every byte is
// checked on the way. Owned by whoever restores; one thread at a time.
#ifndef KAON_SERVER_CHECKPOINT_CHECKPOINT_READER_H_
#define KAON_SERVER_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace kaon::checkpoint {

class CheckpointReader {
 public:
  // `manifest` is one that CheckpointDirectory gave; `directory` outlives the reader.
  CheckpointReader(CheckpointDirectory& directory, v1::CheckpointManifest manifest);

  const v1::CheckpointManifest& manifest() const { return manifest_; }

  // Elements first .. first + num_elements as StateBytes lays them out; `to` has just that size.
  // In int8 both ends are multiples of 32, unless they end the parameter. Reads in the order of
  // (file, offset) read each fragment once. NOT_FOUND naming the tensor; INVALID_ARGUMENT naming
  // both values for a range or size it does not have; DATA_LOSS as CheckedFile.
  absl::Status Read(uint32_t parameter_id, absl::string_view role, uint64_t first,
                    uint64_t num_elements, absl::Span<char> to);

 private:
  absl::Status ReadFile(uint32_t file, uint64_t offset, absl::Span<char> to);

  CheckpointDirectory& directory_;
  const v1::CheckpointManifest manifest_;
  // The file that was read last.
  std::unique_ptr<CheckedFile> file_;
  uint32_t file_index_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CHECKPOINT_READER_H_
