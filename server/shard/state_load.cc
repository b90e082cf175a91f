#include "server/shard/state_load.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"
#include "server/tier/host_view.h"

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
kernels::Region FindSlot(StoredParameter& parameter, const std::string& role) {
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    if (parameter.state_slots[i].name == role) return parameter.slot(i);
  }
  return {};
}

// Returns the memory that the tensor is read into; empty: this shard has none.
kernels::Region MemoryFor(const v1::CheckpointTensor& tensor, StoredParameter* parameter,
                          ParameterPublisher& publisher) {
  if (parameter == nullptr) return {};
  if (tensor.role() == checkpoint::kWeightRole) return publisher.BeginWrite(parameter->id);
  return FindSlot(*parameter, tensor.role());
}

absl::Status LoadTensor(const v1::CheckpointTensor& tensor, const ReadTensor& read,
                        kernels::Backend& backend, kernels::Region to) {
  const uint64_t size = checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
  if (to.size() != size) {
    return absl::DataLossError(absl::StrCat("the snapshot has ", size, " bytes of parameter_id ",
                                            tensor.parameter_id(), " ", tensor.role(),
                                            ", expecting ", to.size()));
  }
  return tier::FillRegion(backend, to, [&](uint64_t offset, absl::Span<char> piece) {
    return read(tensor, offset, piece);
  });
}

}  // namespace

absl::Status LoadState(const v1::CheckpointPart& part, uint64_t step, const ReadTensor& read,
                       ParameterStore& parameters, ParameterPublisher& publisher) {
  for (const v1::CheckpointTensor& tensor : part.tensors()) {
    StoredParameter* parameter = Find(parameters, tensor.parameter_id());
    KAON_RETURN_IF_ERROR(
        LoadTensor(tensor, read, parameters.backend(), MemoryFor(tensor, parameter, publisher)));
    if (tensor.role() == checkpoint::kWeightRole) publisher.Publish(parameter->id, step);
  }
  for (const v1::CheckpointParameter& counters : part.parameters()) {
    StoredParameter* parameter = Find(parameters, counters.parameter_id());
    if (parameter == nullptr) continue;
    parameter->updates_applied = counters.updates_applied();
    parameter->newton_schulz_updates = counters.newton_schulz_updates();
  }
  for (StoredParameter& parameter : parameters.parameters()) {
    NoteWeights(parameters.backend(), publisher.current(parameter.id), parameter);
    NoteSlots(parameters.backend(), parameter);
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
