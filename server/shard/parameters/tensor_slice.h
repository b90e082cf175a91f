// Reads a few elements of one tensor of a parameter, so that a person can look at them. A pure
// function of committed state. Called by the thread that drives the core.
#ifndef KAON_SERVER_SHARD_PARAMETERS_TENSOR_SLICE_H_
#define KAON_SERVER_SHARD_PARAMETERS_TENSOR_SLICE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/region.h"
#include "server/shard/parameters/parameter_store.h"

namespace kaon::shard {

// Most elements of a slice: 1 MiB of float32.
inline constexpr uint32_t kMaxSliceElements = 262144;

// Returns the elements that `request` names, without the step. `newest` are the newest weights,
// `states` the optimizer state. Tensors of a device are copied as far as asked for, those in less
// than 32 bits as a whole.
//   INVALID_ARGUMENT  the count is not 1 .. kMaxSliceElements
//   NOT_FOUND         the parameter has no such tensor; names those that it has
//   OUT_OF_RANGE      the offset is beyond the last element
absl::StatusOr<v1::TensorSlice> SliceOf(const StoredParameter& parameter, kernels::Backend& backend,
                                        kernels::ConstRegion newest,
                                        absl::Span<const kernels::Region> states,
                                        const v1::ShardSliceRequest& request);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_TENSOR_SLICE_H_
