// Puts the chunks of one pull where they belong, checking that every element arrives exactly once
// and intact. Owned by one pull; one thread at a time.
#ifndef KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_
#define KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "client/kaon/tensor.h"
#include "kaon/v1/shard_data.pb.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

class PullAssembler {
 public:
  // Called with a parameter and how many of its elements arrived as infinity.
  using OnInfinite = std::function<void(uint32_t parameter_id, uint64_t elements)>;

  // Targets in the order of request.parameter_ids.
  PullAssembler(const v1::PullRequest& request, std::vector<MutableTensorView> targets,
                OnInfinite on_infinite = nullptr);

  // Writes the chunks of one message into their targets. DATA_LOSS for a checksum that does not
  // match, INTERNAL for a chunk other than the next one; both name the chunk. Nothing of it and of
  // those behind it is written then. INTERNAL for a message without any.
  absl::Status Accept(absl::Span<const proto::ChunkView> chunks);

  // DATA_LOSS, naming the first parameter that is not complete.
  absl::Status CheckComplete() const;

 private:
  absl::Status AcceptOne(const v1::TensorChunk& chunk, proto::Slices payload);

  std::vector<uint32_t> parameter_ids_;
  v1::DType dtype_;
  std::vector<MutableTensorView> targets_;
  const OnInfinite on_infinite_;
  // The target that is being filled, and how many of its elements are there.
  size_t target_ = 0;
  uint64_t num_elements_ = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_
