#include "server/shard/gradients/chunk_check.h"

#include "absl/strings/str_cat.h"
#include "proto/tensor_stream.h"

namespace kaon::shard {

absl::Status CheckChunk(const ChunkBounds& bounds, const v1::TensorChunk& chunk,
                        uint64_t payload_bytes) {
  const uint64_t element_bytes = proto::WireSizeOf(chunk.dtype());
  if (element_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", bounds.name, ": dtype ", chunk.dtype(),
                     " pushed, expecting 1 (fp32), 2 (bf16) or 3 (fp16)"));
  }
  const uint64_t most_elements = proto::kMaxChunkBytes / element_bytes;
  if (chunk.num_elements() < 1 || chunk.num_elements() > most_elements) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", bounds.name, ": num_elements is ",
                                                   chunk.num_elements(), ", expecting 1 .. ",
                                                   most_elements));
  }
  if (payload_bytes != chunk.num_elements() * element_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", bounds.name, ": payload has ",
                                                   payload_bytes, " bytes, expecting ",
                                                   chunk.num_elements() * element_bytes));
  }
  if (chunk.offset() > bounds.num_elements ||
      chunk.num_elements() > bounds.num_elements - chunk.offset()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", bounds.name, ": offset ", chunk.offset(), " + ",
                     chunk.num_elements(), " elements pushed, it has ", bounds.num_elements));
  }
  const bool ends = chunk.offset() + chunk.num_elements() == bounds.num_elements;
  if (!ends && payload_bytes < bounds.min_chunk_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", bounds.name, ": payload has ", payload_bytes, " bytes, expecting at least ",
        bounds.min_chunk_bytes, " in a chunk that does not end the parameter"));
  }
  return absl::OkStatus();
}

}  // namespace kaon::shard
