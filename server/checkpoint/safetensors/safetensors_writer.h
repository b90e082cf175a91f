// Writes one safetensors file of a checkpoint from its first byte to its last, and takes its
// checksums on the way: no byte is read back or held. Owned by whoever writes the checkpoint; one
// thread at a time.
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
  // Writes the header of `tensors`, whose begin and end are not read: LayOut says where each lies.
  // `file` is empty; `rules` as FormatHeader. INVALID_ARGUMENT naming a tensor that cannot be
  // written, or both sizes of a header that is too long; the codes of disk::File.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      std::unique_ptr<disk::File> file, const std::map<std::string, std::string>& metadata,
      std::vector<Tensor> tensors, const SafetensorsRules& rules = kOurFiles);

  // In the order in which their bytes are appended.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // First byte of the first tensor in the file.
  uint64_t first_byte() const { return first_byte_; }

  // The next bytes of the tensors, in pieces of any size. After RESOURCE_EXHAUSTED the same call
  // may be repeated. INVALID_ARGUMENT for bytes beyond the last tensor; nothing is written then.
  absl::Status Append(absl::string_view bytes);

  // Everything is durable when it returns OK, the file's name excepted. FAILED_PRECONDITION naming
  // both sizes when bytes are missing. Nothing can be appended afterwards.
  absl::StatusOr<FileSums> Finish();

 private:
  SafetensorsWriter(std::unique_ptr<disk::File> file, std::vector<Tensor> tensors,
                    uint64_t first_byte);

  absl::Status Write(absl::string_view bytes);

  const std::unique_ptr<disk::File> file_;
  const std::vector<Tensor> tensors_;
  const uint64_t first_byte_;
  // Of the whole file.
  const uint64_t num_bytes_;
  FragmentSums sums_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_WRITER_H_
