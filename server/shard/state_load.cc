#include "server/shard/state_load.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"
#include "server/shard/parameters/tensor_load.h"
#include "server/tier/host_view.h"

namespace kaon::shard {

namespace {

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
  KAON_RETURN_IF_ERROR(LoadTensors(
      {part.tensors().pointer_begin(), part.tensors().pointer_end()}, step, parameters, publisher,
      [](uint32_t, int) {},
      [&](const v1::CheckpointTensor& tensor, kernels::Region to) {
        return LoadTensor(tensor, read, parameters.backend(), to);
      }));
  for (const v1::CheckpointParameter& counters : part.parameters()) {
    StoredParameter* parameter = parameters.Find(counters.parameter_id());
    if (parameter == nullptr) continue;
    parameter->updates_applied = counters.updates_applied();
    parameter->newton_schulz_updates = counters.newton_schulz_updates();
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
