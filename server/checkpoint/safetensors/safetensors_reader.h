// Reads ranges of the tensors of one safetensors file. The header is checked whole before anything
// is read; whether the bytes are those that were written is for the file to know (CheckedFile).
// Owned by whoever reads the file; one thread at a time.
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
  // INVALID_ARGUMENT naming the file and what of its header breaks `rules`; the codes of
  // disk::File. `file` outlives the reader.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(disk::File& file,
                                                                 const SafetensorsRules& rules);

  const SafetensorsHeader& header() const { return header_; }

  // NOT_FOUND naming the file and the tensor.
  absl::StatusOr<const Tensor*> Find(absl::string_view name) const;

  // Bytes of `tensor`, which is one of this header's, from `offset` on. OUT_OF_RANGE naming the
  // tensor and both ends; DATA_LOSS when the file became shorter; the codes of disk::File.
  absl::Status Read(const Tensor& tensor, uint64_t offset, absl::Span<char> to) const;

 private:
  SafetensorsReader(disk::File& file, SafetensorsHeader header);

  disk::File& file_;
  const SafetensorsHeader header_;
  // Name -> place in the header, whose names it refers to.
  absl::flat_hash_map<absl::string_view, size_t> by_name_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_SAFETENSORS_READER_H_
