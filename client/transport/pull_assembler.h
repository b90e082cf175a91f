// Writes the chunks of one pull to their targets. Checks that every element arrives exactly once
// and undamaged. Owned by one pull; one thread at a time.
#ifndef KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_
#define KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/kaon/tensor.h"
#include "kaon/v1/shard_data.pb.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

class PullAssembler {
 public:
  // Called with a parameter and the number of its elements that arrived as infinity.
  using OnInfinite = std::function<void(uint32_t parameter_id, uint64_t elements)>;

  // `targets` have the order of request.parameter_ids.
  PullAssembler(const v1::PullRequest& request, std::vector<MutableTensorView> targets,
                OnInfinite on_infinite = nullptr);

  // Writes the chunks of one message to their targets. DATA_LOSS names a chunk with a wrong
  // checksum; INTERNAL names a chunk other than the next one. The bad chunk and those after it are
  // not written. INTERNAL also if the message has no chunk.
  absl::Status Accept(absl::Span<const proto::ChunkView> chunks);

  // A target, and the memory in it to which the elements of a chunk belong.
  struct Place {
    MutableTensorView target;
    std::byte* to = nullptr;
  };
  // Checks all of a chunk of so many bytes but the bytes. Counts it as written, which the caller
  // does. INTERNAL as of Accept.
  absl::StatusOr<Place> Take(const v1::TensorChunk& chunk, size_t bytes);

  // Returns DATA_LOSS if a parameter is not complete; the error names the first one.
  absl::Status CheckComplete() const;

 private:
  // Checks all of a chunk but its bytes.
  absl::StatusOr<Place> Check(const v1::TensorChunk& chunk, size_t bytes) const;
  // Counts a chunk that was checked as written.
  void Count(const v1::TensorChunk& chunk);
  absl::Status AcceptOne(const v1::TensorChunk& chunk, proto::Slices payload);

  std::vector<uint32_t> parameter_ids_;
  v1::DType dtype_;
  std::vector<MutableTensorView> targets_;
  const OnInfinite on_infinite_;
  // The target being filled, and the number of its elements that have arrived.
  size_t target_ = 0;
  uint64_t num_elements_ = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_PULL_ASSEMBLER_H_
