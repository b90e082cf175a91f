// Puts the chunks of one pull where they belong, checking that every element arrives exactly once
// and intact. Owned by one pull; one thread at a time.
#ifndef KAON_CLIENT_PULL_ASSEMBLER_H_
#define KAON_CLIENT_PULL_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/kaon/tensor.h"
#include "kaon/v1/shard_data.pb.h"
#include "proto/tensor_stream.h"

namespace kaon::client {

class PullAssembler {
 public:
  // Targets in the order of request.parameter_ids.
  PullAssembler(const v1::PullRequest& request, std::vector<MutableTensorView> targets);

  // Writes one chunk into its target. DATA_LOSS for a checksum that does not match, INTERNAL for a
  // chunk other than the next one; both name the chunk. Nothing is written then.
  absl::Status Accept(const v1::TensorChunk& chunk, proto::Slices payload);

  // DATA_LOSS, naming the first parameter that is not complete.
  absl::Status CheckComplete() const;

 private:
  std::vector<uint32_t> parameter_ids_;
  v1::DType dtype_;
  std::vector<MutableTensorView> targets_;
  // The target that is being filled, and how many of its elements are there.
  size_t target_ = 0;
  uint64_t num_elements_ = 0;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_PULL_ASSEMBLER_H_
