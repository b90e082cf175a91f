// Reads ranges of the tensors of one safetensors file. Checks the whole header before any read. It
// does not check the data; CheckedFile does. Not thread-safe. The reader of the file owns it.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_READER_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_READER_H_

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/checkpoint/safetensors/safetensors_header.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

class SafetensorsReader {
 public:
  // Opens `file`, which must outlive the reader. INVALID_ARGUMENT names the file and how its header
  // breaks `rules`. Also returns the errors of disk::File.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(disk::File& file,
                                                                 const SafetensorsRules& rules);

  const SafetensorsHeader& header() const { return header_; }

  // Returns the tensor. NOT_FOUND names the file and the tensor.
  absl::StatusOr<const Tensor*> Find(absl::string_view name) const;

  // Reads bytes of `tensor`, one of this header's, from `offset` on. OUT_OF_RANGE names the tensor
  // and both ends; DATA_LOSS if the file became shorter. Also returns the errors of disk::File.
  absl::Status Read(const Tensor& tensor, uint64_t offset, absl::Span<char> to) const;

 private:
  SafetensorsReader(disk::File& file, SafetensorsHeader header);

  disk::File& file_;
  const SafetensorsHeader header_;
  // Index in the header by name; the keys refer to the header's names.
  absl::flat_hash_map<absl::string_view, size_t> by_name_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_READER_H_
