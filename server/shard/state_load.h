// Loads the state of a snapshot into the memory of a shard. A free function; step thread.
#ifndef KAON_SERVER_SHARD_STATE_LOAD_H_
#define KAON_SERVER_SHARD_STATE_LOAD_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kaon/v1/checkpoint.pb.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// Reads the bytes of a tensor from `offset` on, as checkpoint::StateBytes lays them out. Reads are
// in order.
using ReadTensor = std::function<absl::Status(const v1::CheckpointTensor& tensor, uint64_t offset,
                                              absl::Span<char> to)>;

// Reads the tensors of `part` in their order and publishes the weights as version `step`. DATA_LOSS
// naming both sizes of a tensor, or both digests, if what was read is not what was frozen (P7).
// Returns the errors of `read` as they are. After an error the state is useless.
absl::Status LoadState(const v1::CheckpointPart& part, uint64_t step, const ReadTensor& read,
                       ParameterStore& parameters, ParameterPublisher& publisher);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_STATE_LOAD_H_
