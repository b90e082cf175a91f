#include "server/shard/state_load.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::shard {

namespace {

// Returns null for a parameter that is not this shard's.
StoredParameter* Find(ParameterStore& parameters, uint32_t id) {
  std::vector<StoredParameter>& all = parameters.parameters();
  const auto found = std::lower_bound(
      all.begin(), all.end(), id,
      [](const StoredParameter& parameter, uint32_t wanted) { return parameter.id < wanted; });
  return found != all.end() && found->id == id ? &*found : nullptr;
}

// Returns the memory of the optimizer state with this role; empty: the parameter has none.
absl::Span<std::byte> FindSlot(StoredParameter& parameter, const std::string& role) {
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    const kernels::StateSlot& slot = parameter.state_slots[i];
    if (slot.name != role) continue;
    return parameter.state[i].bytes().first(static_cast<size_t>(slot.num_bytes));
  }
  return {};
}

absl::Status LoadTensor(const v1::CheckpointTensor& tensor, uint64_t step, const ReadTensor& read,
                        StoredParameter* parameter, ParameterPublisher& publisher) {
  absl::Span<std::byte> to;
  const bool weights = tensor.role() == checkpoint::kWeightRole;
  if (parameter != nullptr && weights) {
    const absl::Span<float> memory = publisher.BeginWrite(parameter->id);
    to = {reinterpret_cast<std::byte*>(memory.data()), memory.size() * sizeof(float)};
  } else if (parameter != nullptr) {
    to = FindSlot(*parameter, tensor.role());
  }
  const uint64_t size = checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
  if (to.size() != size) {
    return absl::DataLossError(absl::StrCat("the snapshot has ", size, " bytes of parameter_id ",
                                            tensor.parameter_id(), " ", tensor.role(),
                                            ", expecting ", to.size()));
  }
  KAON_RETURN_IF_ERROR(read(tensor, absl::MakeSpan(reinterpret_cast<char*>(to.data()), to.size())));
  if (weights) publisher.Publish(parameter->id, step);
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadState(const v1::CheckpointPart& part, uint64_t step, const ReadTensor& read,
                       ParameterStore& parameters, ParameterPublisher& publisher) {
  for (const v1::CheckpointTensor& tensor : part.tensors()) {
    KAON_RETURN_IF_ERROR(
        LoadTensor(tensor, step, read, Find(parameters, tensor.parameter_id()), publisher));
  }
  for (const v1::CheckpointParameter& counters : part.parameters()) {
    StoredParameter* parameter = Find(parameters, counters.parameter_id());
    if (parameter == nullptr) continue;
    parameter->updates_applied = counters.updates_applied();
    parameter->newton_schulz_updates = counters.newton_schulz_updates();
  }
  for (StoredParameter& parameter : parameters.parameters()) {
    NoteWeights(publisher.current(parameter.id), parameter);
    NoteSlots(parameter);
  }
  const StateDigests digests = parameters.Digests();
  const uint64_t state = digests.state + parameters.PositionDigest(part.position());
  if (digests.weights == part.weights_digest() && state == part.state_digest()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat(
      "the snapshot of position %d was made with weights digest %016x and state digest %016x, "
      "what was read has %016x and %016x",
      part.position(), part.weights_digest(), part.state_digest(), digests.weights, state));
}

}  // namespace kaon::shard
