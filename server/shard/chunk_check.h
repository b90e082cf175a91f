// Whether a chunk fits its parameter, whatever was pushed before it. Pure functions; any thread.
#ifndef KAON_SERVER_SHARD_CHUNK_CHECK_H_
#define KAON_SERVER_SHARD_CHUNK_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/tensor.pb.h"

namespace kaon::shard {

// `name` and `num_elements` are the parameter's. INVALID_ARGUMENT naming the parameter, the field,
// its value and its range.
absl::Status CheckChunk(absl::string_view name, uint64_t num_elements, const v1::TensorChunk& chunk,
                        uint64_t payload_bytes);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_CHUNK_CHECK_H_
