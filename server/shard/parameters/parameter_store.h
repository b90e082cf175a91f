// The parameters of one job on one shard: memory of weights and optimizer state, rule, and update
// counts. Owned by AppliedState; used by the thread that drives it.
#ifndef KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_
#define KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kaon/v1/shard_control.pb.h"
#include "kernels/backend.h"
#include "kernels/optimizer_rule.h"
#include "kernels/region.h"
#include "server/shard/parameters/home_choice.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_trace.h"
#include "server/tier/memory_home.h"
#include "server/tier/nvme_tier.h"
#include "server/tier/tiered_store.h"
#include "server/tier/unit_home.h"

namespace kaon::shard {

// The places of the tensors of one parameter.
struct StoredPlace {
  tier::UnitHome* home = nullptr;
  tier::UnitId unit = 0;
  // A unit of the memory that has the state alone: weights are on the disk, or came back from it.
  std::optional<tier::UnitId> state_unit;
};

struct StoredParameter {
  uint32_t id = 0;
  std::string name;
  std::vector<uint64_t> shape;
  uint64_t num_elements = 0;
  // Index of its group; -1 for a frozen parameter, which has no rule and no state.
  int group = -1;
  std::optional<kernels::RuleConfig> rule;
  // The place that its group asks for.
  HomeWish wish = HomeWish::kNone;
  // Weights, and optimizer state in the order of kernels::StateSlots.
  StoredPlace place;
  std::vector<kernels::StateSlot> state_slots;
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

  // Returns whether its weights are always in memory.
  bool is_in_memory() const { return HasInMemory(0); }
  // `tensor` is 0 for the weights, 1 for the first state.
  bool HasInMemory(size_t tensor) const {
    return !place.home->Memory(place.unit, place.home->newest(place.unit), tensor).empty();
  }
  uint64_t weight_bytes() const { return num_elements * sizeof(float); }
};

// Compares the newest weights and the slots of a parameter with their digests. DATA_LOSS names the
// parameter and both digests.
absl::Status CheckDigests(kernels::Backend& backend, const StoredParameter& parameter,
                          kernels::ConstRegion weights, absl::Span<const kernels::Region> slots);

// Recompute the digests (and the largest weight) of a parameter. Call them after anything but an
// update wrote its tensors.
void NoteWeights(kernels::Backend& backend, kernels::ConstRegion weights,
                 StoredParameter& parameter);
void NoteSlots(kernels::Backend& backend, absl::Span<const kernels::Region> slots,
               StoredParameter& parameter);

// docs/formats.md: of the newest weights; of weights, slots and counters.
struct StateDigests {
  uint64_t weights = 0;
  uint64_t state = 0;
};

class ParameterStore {
 public:
  // Places of parameters. All outlive the store.
  struct Homes {
    // The memory that the backend computes on.
    tier::TieredStore& memory;
    // Gets the parameters that find no room in memory; null: there must be room.
    tier::NvmeTier* nvme = nullptr;
  };

  // Allocates memory for the job's parameters on `shard`. Returns RESOURCE_EXHAUSTED naming the
  // parameter and the arithmetic, or INVALID_ARGUMENT naming a field of the definition or
  // placement. After an error nothing stays reserved. `backend` outlives the result.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(
      const Homes& homes, kernels::Backend& backend, const v1::RegisterBody& registration,
      uint32_t shard, uint32_t num_shards);
  ~ParameterStore();

  // Reserves, once, the most that the backend allocates for concurrent updates of these parameters,
  // also after a change of their groups. RESOURCE_EXHAUSTED naming the parameter and the
  // arithmetic.
  absl::Status ReserveWorkspace();
  // Returns rule and shape of these parameters; valid until SetGroups.
  static std::vector<kernels::SizedUpdate> SizedUpdates(
      absl::Span<StoredParameter* const> parameters);

  // Returns all parameters in the order of the next step. An applied step with parameters on a disk
  // reverses the next order, which begins with those that are still in memory.
  std::vector<StoredParameter*> TakeStepOrder(bool applied);
  // Reads the parameters of the next step ahead, as far as there is room.
  void Prefetch();
  // Returns how many parameters, from the first one on, may be pinned at once; at least 1.
  size_t NumPinnable(absl::Span<StoredParameter* const> parameters) const;

  // Updates by the groups of `registration` from now on. They must keep each parameter's rule and
  // state (job::CheckGroupChange). Changes no state.
  void SetGroups(const v1::RegisterBody& registration);

  kernels::Backend& backend() const { return backend_; }
  // Ordered by id.
  std::vector<StoredParameter>& parameters() { return parameters_; }
  const std::vector<StoredParameter>& parameters() const { return parameters_; }
  // Returns null for a parameter that is not this shard's.
  StoredParameter* Find(uint32_t parameter_id);
  // Requires a parameter of this shard (CHECK).
  const StoredParameter& Get(uint32_t parameter_id) const;
  // Returns the ids of parameters that live on the disk.
  std::set<uint32_t> OnDisk() const;
  // Allocates another place for a parameter, in memory or on the disk, and frees one. A place in
  // memory shares the state that the parameter has there alone (StoredPlace::state_unit). Errors as
  // of Create.
  absl::StatusOr<StoredPlace> AllocatePlace(const StoredParameter& parameter, HomePlace place);
  void FreePlace(const StoredPlace& place);
  // Tells that parameters may be on the disk from now on, whose updates run in other groups.
  // RESOURCE_EXHAUSTED if they take more memory than there is.
  absl::Status UseDisk();
  // Tells that parameters have moved, or will not: without any on the disk, the memory that UseDisk
  // took is released.
  void NoteMoved();
  // Returns the place that a group asks for. RESOURCE_EXHAUSTED if this shard has no such tier: a
  // start with other flags has it, and no file is at fault.
  absl::StatusOr<HomeWish> WishOf(const v1::ParameterGroup& group) const;
  // Returns the argument for ParameterPublisher::Serve.
  std::vector<ParameterPublisher::Source> sources() const;

  // Returns the digests of this shard, without reading a tensor.
  StateDigests Digests() const;
  // Returns what `applied_position` adds to the state digest of DescribeShardResponse.
  uint64_t PositionDigest(uint64_t applied_position) const;
  std::vector<v1::ParameterState> Describe() const;

 private:
  ParameterStore(const Homes& homes, kernels::Backend& backend)
      : store_(homes.memory),
        nvme_(homes.nvme),
        backend_(backend),
        memory_(homes.memory, backend.memory_tier()) {}

  absl::Status Add(const v1::RegisterBody& registration, const v1::ParameterPlacement& placement);
  std::vector<HomePlace> ChoosePlaces();
  std::vector<StoredParameter*> StepOrder(bool reversed);
  // Returns the most bytes that concurrent updates in this order take, and the updates that do.
  // `any_group`: a disk may cut the groups of updates anywhere.
  std::pair<uint64_t, absl::Span<StoredParameter* const>> MostWorkspace(
      absl::Span<StoredParameter* const> order, bool any_group) const;

  tier::TieredStore& store_;
  tier::NvmeTier* const nvme_;
  kernels::Backend& backend_;
  tier::MemoryHome memory_;
  std::vector<StoredParameter> parameters_;
  // Some parameters are on the disk.
  bool uses_disk_ = false;
  // The next step begins with the last parameter.
  bool reversed_ = false;
  // Bytes reserved in the store for updates.
  uint64_t workspace_bytes_ = 0;
  // Makes the names of tensors unique.
  uint64_t places_ = 0;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_PARAMETER_STORE_H_
