// Writes one safetensors file of a checkpoint sequentially, and computes its checksums on the way,
// without reading back or buffering data. Not thread-safe. The writer of the checkpoint owns it.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_WRITER_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/safetensors_header.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

class SafetensorsWriter {
 public:
  // Writes the header of `tensors` into the empty `file`. Ignores their begin and end: LayOut sets
  // the places. `rules` are those of FormatHeader. INVALID_ARGUMENT names a tensor that cannot be
  // written, or both sizes of a header that is too long. Also returns the errors of disk::File.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      std::unique_ptr<disk::File> file, const std::map<std::string, std::string>& metadata,
      std::vector<Tensor> tensors, const SafetensorsRules& rules = kOurFiles);

  // Returns the tensors in the order in which their bytes must be appended.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Returns the offset of the first tensor in the file.
  uint64_t first_byte() const { return first_byte_; }

  // Appends the next bytes of the tensors, in pieces of any size. After RESOURCE_EXHAUSTED the
  // caller may retry the same call. INVALID_ARGUMENT for bytes beyond the last tensor; then nothing
  // is written.
  absl::Status Append(absl::string_view bytes);

  // Makes everything durable except the file's name, and returns the sums. FAILED_PRECONDITION
  // names both sizes if bytes are missing. Nothing can be appended afterwards.
  absl::StatusOr<FileSums> Finish();

 private:
  SafetensorsWriter(std::unique_ptr<disk::File> file, std::vector<Tensor> tensors,
                    uint64_t first_byte);

  absl::Status Write(absl::string_view bytes);

  const std::unique_ptr<disk::File> file_;
  const std::vector<Tensor> tensors_;
  const uint64_t first_byte_;
  // Size of the whole file.
  const uint64_t num_bytes_;
  FragmentSums sums_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_WRITER_H_
