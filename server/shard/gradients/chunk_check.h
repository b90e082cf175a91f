// Checks whether a chunk fits its parameter, independent of earlier chunks. Pure functions; any
// thread.
#ifndef KAON_SERVER_SHARD_GRADIENTS_CHUNK_CHECK_H_
#define KAON_SERVER_SHARD_GRADIENTS_CHUNK_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/tensor.pb.h"

namespace kaon::shard {

// Limits of one parameter's chunks.
struct ChunkBounds {
  // Name of the parameter.
  absl::string_view name;
  uint64_t num_elements = 0;
  // Minimum payload bytes of every chunk but the last of its parameter. Each accepted chunk costs
  // memory until its step is applied, whatever its size.
  uint64_t min_chunk_bytes = 0;
};

// Returns INVALID_ARGUMENT naming the parameter, the field, its value and its range.
absl::Status CheckChunk(const ChunkBounds& bounds, const v1::TensorChunk& chunk,
                        uint64_t payload_bytes);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_CHUNK_CHECK_H_
