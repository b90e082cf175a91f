// Reads the state of a job from a checkpoint, by parameter and element. The caller need not know
// how many shards wrote it, nor which file has an element (protocol.md section 6). Checks every
// byte. Not thread-safe. The code that restores owns it.
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
  // `manifest` must come from a CheckpointDirectory; `directory` must outlive the reader.
  CheckpointReader(CheckpointDirectory& directory, v1::CheckpointManifest manifest);

  const v1::CheckpointManifest& manifest() const { return manifest_; }

  // Reads elements [first, first + num_elements) in the layout of StateBytes; `to` has exactly that
  // size. For int8 both ends must be multiples of 32, or the end of the parameter. Calls in the
  // order of (file, offset) read each fragment only once.
  //   NOT_FOUND         names the tensor
  //   INVALID_ARGUMENT  the tensor does not have that range or size; names both values
  //   DATA_LOSS         as CheckedFile
  absl::Status Read(uint32_t parameter_id, absl::string_view role, uint64_t first,
                    uint64_t num_elements, absl::Span<char> to);

 private:
  absl::Status ReadFile(uint32_t file, uint64_t offset, absl::Span<char> to);

  CheckpointDirectory& directory_;
  const v1::CheckpointManifest manifest_;
  // The file of the last read.
  std::unique_ptr<CheckedFile> file_;
  uint32_t file_index_ = 0;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_CHECKPOINT_READER_H_
