#include "server/shard/parameters/tensor_load.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::shard {

namespace {

// A parameter whose tensors are being read.
struct OpenParameter {
  tier::UnitUpdatePin pinned;
  size_t tensors_left = 0;
};

kernels::Region MemoryFor(const v1::CheckpointTensor& tensor, const StoredParameter& parameter,
                          const tier::UnitUpdatePin& pinned) {
  if (tensor.role() == checkpoint::kWeightRole) return pinned.next_weights();
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    if (parameter.state_slots[i].name == tensor.role()) return pinned.state(i);
  }
  return {};
}

}  // namespace

absl::Status LoadTensors(std::vector<const v1::CheckpointTensor*> tensors, uint64_t step,
                         ParameterStore& store, ParameterPublisher& publisher,
                         absl::FunctionRef<void(uint32_t parameter_id, int version)> before_write,
                         FillTensor fill) {
  const auto place = [&](const v1::CheckpointTensor* tensor) {
    const StoredParameter* const parameter = store.Find(tensor->parameter_id());
    return parameter == nullptr || parameter->is_in_memory() ? 0 : uint64_t{parameter->id} + 1;
  };
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const auto* a, const auto* b) { return place(a) < place(b); });
  std::map<uint32_t, size_t> num_tensors;
  for (const v1::CheckpointTensor* tensor : tensors) ++num_tensors[tensor->parameter_id()];
  std::map<uint32_t, OpenParameter> open;
  for (const v1::CheckpointTensor* tensor : tensors) {
    const uint32_t id = tensor->parameter_id();
    StoredParameter* const parameter = store.Find(id);
    if (parameter == nullptr) {
      KAON_RETURN_IF_ERROR(fill(*tensor, {}));
      continue;
    }
    if (open.find(id) == open.end()) {
      KAON_ASSIGN_OR_RETURN(tier::UnitUpdatePin pinned, publisher.BeginWrite(id));
      before_write(id, pinned.next_version());
      open.emplace(id, OpenParameter{std::move(pinned), num_tensors[id]});
    }
    OpenParameter& reading = open.at(id);
    KAON_RETURN_IF_ERROR(fill(*tensor, MemoryFor(*tensor, *parameter, reading.pinned)));
    if (--reading.tensors_left > 0) continue;
    NoteWeights(store.backend(), reading.pinned.next_weights(), *parameter);
    NoteSlots(store.backend(), reading.pinned.states(), *parameter);
    publisher.Publish(id, step, std::move(reading.pinned));
    open.erase(id);
  }
  store.Prefetch();
  return absl::OkStatus();
}

}  // namespace kaon::shard
