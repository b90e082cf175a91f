// The parameters of one job on one shard: memory of weights and optimizer state, rule, and update
// counts. Owned by AppliedState; used by the thread that drives it.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/optimizer_rule.h"
#include "kernels/region.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_trace.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {

struct StoredParameter {
  uint32_t id = 0;
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t num_elements = 0;
  // Index of its group; -1 for a frozen parameter, which has no rule and no state.
  int group = -1;
  std::optional<kernels::RuleConfig> rule;
  // Two buffers of weights, or one for a frozen parameter. ParameterPublisher knows the version of
  // each.
  std::vector<tier::Pin> weights;
  // Optimizer state in the order of kernels::StateSlots, and a description of each slot.
  std::vector<tier::Pin> state;
  std::vector<kernels::StateSlot> state_slots;
  std::vector<std::string> tensor_names;
  uint64_t state_bytes = 0;
  uint64_t updates_applied = 0;
  uint64_t newton_schulz_updates = 0;
  // Digests of the newest weights (0 before the first load) and of all slots. Every writer of these
  // tensors must update them.
  uint64_t weights_digest = 0;
  uint64_t slots_digest = 0;
  // Bit pattern of the largest magnitude in the newest weights; 0 before the first load.
  uint32_t largest_weight_bits = 0;
  ParameterTrace trace;

  // Returns the bytes of a slot, without the padding of its tensor.
  kernels::Region slot(size_t i) const {
    return state[i].region().Sub(0, static_cast<uint64_t>(state_slots[i].num_bytes));
  }
};

// Recompute the digests (and the largest weight) of a parameter. Call them after anything but an
// update wrote its tensors.
void NoteWeights(kernels::Backend& backend, kernels::ConstRegion weights,
                 StoredParameter& parameter);
void NoteSlots(kernels::Backend& backend, StoredParameter& parameter);

// docs/formats.md: of the newest weights; of weights, slots and counters.
struct StateDigests {
  uint64_t weights = 0;
  uint64_t state = 0;
};

class ParameterStore {
 public:
  // Allocates memory for the job's parameters on `shard`. Returns RESOURCE_EXHAUSTED naming the
  // parameter and the arithmetic, or INVALID_ARGUMENT naming a field of the definition or
  // placement. After an error nothing stays reserved. `backend` computes on the memory of `store`.
  // Both outlive the result.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(
      tier::TieredStore& store, kernels::Backend& backend, const v1::RegisterBody& registration,
      uint32_t shard, uint32_t num_shards);
  ~ParameterStore();

  // Reserves, once, the most that the backend allocates for concurrent updates of these parameters,
  // also after a change of their groups. RESOURCE_EXHAUSTED naming the parameter and the
  // arithmetic.
  absl::Status ReserveWorkspace();
  // Returns rule and shape of every parameter, ordered by id; valid until SetGroups.
  std::vector<kernels::SizedUpdate> SizedUpdates() const;

  // Updates by the groups of `registration` from now on. They must keep each parameter's rule and
  // state (job::CheckGroupChange). Changes no state.
  void SetGroups(const v1::RegisterBody& registration);

  kernels::Backend& backend() const { return backend_; }
  // Ordered by id.
  std::vector<StoredParameter>& parameters() { return parameters_; }
  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  // Requires a parameter of this shard (CHECK).
  const StoredParameter& Get(uint32_t parameter_id) const;
  // Returns the argument for ParameterPublisher::Serve.
  std::vector<ParameterPublisher::Source> sources() const;

  // Returns the digests of this shard, without reading a tensor.
  StateDigests Digests() const;
  // Returns what `applied_position` adds to the state digest of DescribeShardResponse.
  uint64_t PositionDigest(uint64_t applied_position) const;
  std::vector<v1::ParameterState> Describe() const;

 private:
  ParameterStore(tier::TieredStore& store, kernels::Backend& backend)
      : store_(store), backend_(backend) {}

  absl::Status Add(const v1::RegisterBody& registration, const v1::ParameterPlacement& placement);
  absl::StatusOr<tier::Pin> AllocateTensor(const std::string& tensor, uint64_t num_elements,
                                           StoredParameter* parameter);

  tier::TieredStore& store_;
  kernels::Backend& backend_;
  std::vector<StoredParameter> parameters_;
  // Bytes reserved in the store for updates.
  uint64_t workspace_bytes_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_
