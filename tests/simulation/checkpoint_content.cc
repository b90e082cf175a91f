#include "tests/simulation/checkpoint_content.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "job/definition.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/simulation/model.h"

namespace kaon::simulation {

absl::StatusOr<uint64_t> ContentDigest(checkpoint::CheckpointDirectory& directory,
                                       const v1::CheckpointManifest& manifest) {
  checkpoint::CheckpointReader reader(directory, manifest);
  const v1::JobDefinition& job = manifest.registration().definition();
  uint64_t digest = 0;
  std::string bytes;
  const auto add = [&](uint32_t id, uint32_t slot, const std::string& role,
                       uint64_t num_bytes) -> absl::Status {
    bytes.resize(num_bytes);
    KAON_RETURN_IF_ERROR(reader.Read(id, role, 0,
                                     job::NumElements(job.parameters(static_cast<int>(id))),
                                     absl::MakeSpan(bytes)));
    const absl::Span<const std::byte> read(reinterpret_cast<const std::byte*>(bytes.data()),
                                           bytes.size());
    digest += kernels::TensorDigester(id, slot).OfBytes(read, 0);
    return absl::OkStatus();
  };
  for (const v1::CheckpointParameter& parameter : manifest.parameters()) {
    const uint32_t id = parameter.parameter_id();
    const uint64_t num_elements = job::NumElements(job.parameters(static_cast<int>(id)));
    KAON_RETURN_IF_ERROR(
        add(id, kernels::kWeightSlot, checkpoint::kWeightRole, num_elements * sizeof(float)));
    uint32_t slot = 0;
    for (const kernels::StateSlot& one : SlotsOf(manifest.registration(), id)) {
      KAON_RETURN_IF_ERROR(add(id, ++slot, std::string(one.name), one.num_bytes));
    }
    digest += kernels::FactDigest(id, kernels::kUpdatesSlot, parameter.updates_applied());
  }
  return digest;
}

}  // namespace kaon::simulation
