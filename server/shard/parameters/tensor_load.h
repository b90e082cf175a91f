// Writes the state of parameters from tensors that somebody reads, and publishes their weights. A
// free function; step thread.
#ifndef KAON_SERVER_SHARD_PARAMETERS_TENSOR_LOAD_H_
#define KAON_SERVER_SHARD_PARAMETERS_TENSOR_LOAD_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kaon/v1/checkpoint.pb.h"
#include "kernels/region.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// Fills `to`, the whole memory of the tensor; empty: this shard has no such tensor.
using FillTensor =
    absl::FunctionRef<absl::Status(const v1::CheckpointTensor& tensor, kernels::Region to)>;

// Calls `fill` for each of `tensors`, in their order. Parameters on a disk come last, one after the
// other, because there is memory for a few of them only. Once a parameter has its last tensor,
// notes its digests and publishes its weights as version `step`. Calls `before_write` with each
// parameter, and the version of its unit, before that is written. Errors are those of `fill` and of
// a disk; the state is useless then.
absl::Status LoadTensors(std::vector<const v1::CheckpointTensor*> tensors, uint64_t step,
                         ParameterStore& store, ParameterPublisher& publisher,
                         absl::FunctionRef<void(uint32_t parameter_id, int version)> before_write,
                         FillTensor fill);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_TENSOR_LOAD_H_
