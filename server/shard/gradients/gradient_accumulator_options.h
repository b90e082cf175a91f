// Options of a GradientAccumulator. Plain values, set before the accumulator is made.
#ifndef KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_OPTIONS_H_
#define KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_OPTIONS_H_

#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "server/shard/step_phases.h"
#include "server/tier/state_tier.h"
#include "server/tier/swapped_memory.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

struct GradientAccumulatorOptions {
  // Both outlive the accumulator.
  tier::TieredStore* store = nullptr;
  kernels::Backend* backend = nullptr;
  // Split evenly over the job's workers.
  uint64_t staging_bytes = 0;
  // Called when everything of a generation is folded: without a lock held, on any thread, perhaps
  // inside BeginFolding.
  std::function<void(uint64_t generation)> on_folded;
  // Like on_folded, once for a parameter folded before all are; never inside BeginFolding.
  std::function<void(uint64_t generation, uint32_t parameter_id)> on_parameter_folded;
  // Minimum bytes of every chunk but the last of its parameter.
  uint64_t min_chunk_bytes = 0;
  // Records the time of receiving and folding; null: not measured.
  StepPhases* phases = nullptr;
  // Budget of the host memory that gradients of a device are journaled from; outlives the
  // accumulator. Null: they are not journaled. Not used where the backend computes on the host.
  tier::StateTier* staging = nullptr;
  // Holds the sums of parameters that live on a disk, and nothing else; outlives the accumulator.
  // Null: no parameter does.
  tier::SwappedMemory* swapped = nullptr;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_GRADIENT_ACCUMULATOR_OPTIONS_H_
