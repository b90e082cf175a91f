#include "server/shard/parameters/tensor_slice.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/state_codec.h"
#include "proto/crc32c.h"
#include "proto/text.h"
#include "server/tier/host_view.h"

namespace kaon::shard {

namespace {

constexpr char kWeight[] = "weight";

absl::Status NoSuchTensor(const StoredParameter& parameter, const std::string& tensor) {
  std::vector<std::string> names = {kWeight};
  for (const kernels::StateSlot& slot : parameter.state_slots) names.push_back(slot.name);
  return absl::NotFoundError(absl::StrCat("tensor \"", proto::Excerpt(tensor),
                                          "\" asked for, the parameter has ",
                                          absl::StrJoin(names, ", ")));
}

// Returns elements [first, first + count) of a slot. Codecs decode whole groups.
std::vector<float> Decoded(const kernels::StateSlot& slot, absl::Span<const std::byte> bytes,
                           uint64_t first, uint64_t count) {
  const uint64_t begin = first / kernels::kStateGroup * kernels::kStateGroup;
  const uint64_t end = std::min<uint64_t>(
      (first + count + kernels::kStateGroup - 1) / kernels::kStateGroup * kernels::kStateGroup,
      slot.num_elements);
  std::vector<float> values(end - begin);
  kernels::DecodeState(slot.dtype, bytes.first(slot.num_bytes), static_cast<int64_t>(begin),
                       absl::MakeSpan(values));
  const auto at = values.begin() + static_cast<int64_t>(first - begin);
  return {at, at + static_cast<int64_t>(count)};
}

}  // namespace

absl::StatusOr<v1::TensorSlice> SliceOf(const StoredParameter& parameter, kernels::Backend& backend,
                                        kernels::ConstRegion newest,
                                        absl::Span<const kernels::Region> states,
                                        const v1::ShardSliceRequest& request) {
  if (request.count() < 1 || request.count() > kMaxSliceElements) {
    return absl::InvalidArgumentError(
        absl::StrCat("count is ", request.count(), ", must be 1 .. ", kMaxSliceElements));
  }
  const auto slot = std::find_if(
      parameter.state_slots.begin(), parameter.state_slots.end(),
      [&request](const kernels::StateSlot& known) { return known.name == request.tensor(); });
  const bool is_weight = request.tensor() == kWeight;
  if (!is_weight && slot == parameter.state_slots.end()) {
    return NoSuchTensor(parameter, request.tensor());
  }
  const uint64_t size =
      is_weight ? parameter.num_elements : static_cast<uint64_t>(slot->num_elements);
  if (request.offset() >= size) {
    return absl::OutOfRangeError(
        absl::StrCat("offset is ", request.offset(), ", must be below ", size));
  }
  const uint64_t count = std::min<uint64_t>(request.count(), size - request.offset());
  std::vector<float> values;
  if (is_weight || slot->dtype == kernels::StateDType::kFloat32) {
    const kernels::ConstRegion tensor =
        is_weight ? newest : states[slot - parameter.state_slots.begin()];
    const tier::HostView read(backend, tensor.SubFloats(request.offset(), count));
    values.assign(read.floats().begin(), read.floats().end());
  } else {
    const kernels::Region state = states[slot - parameter.state_slots.begin()];
    values = Decoded(*slot, tier::HostView(backend, state).bytes(), request.offset(), count);
  }
  v1::TensorSlice slice;
  for (const uint64_t length : parameter.shape) slice.add_shape(length);
  slice.mutable_values()->resize(values.size() * sizeof(float));
  std::memcpy(slice.mutable_values()->data(), values.data(), slice.values().size());
  slice.set_crc32c(proto::Crc32c(slice.values().data(), slice.values().size()));
  return slice;
}

}  // namespace kaon::shard
