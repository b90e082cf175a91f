#include "server/shard/parameters/parameter_store.h"

#include <glog/logging.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/names.h"
#include "job/norm_use.h"
#include "job/rule_config.h"
#include "job/validation.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/tier/host_tier.h"

namespace kaon::shard {

namespace {

absl::Status CheckPlacement(const v1::RegisterBody& registration, uint32_t num_shards) {
  const v1::JobDefinition& job = registration.definition();
  const v1::Placement& placement = registration.placement();
  if (placement.num_shards() != num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement on ", placement.num_shards(), " shards, there are ", num_shards));
  }
  if (placement.parameters_size() != job.parameters_size()) {
    return absl::InvalidArgumentError(absl::StrCat("placement of ", placement.parameters_size(),
                                                   " parameters, the job has ",
                                                   job.parameters_size()));
  }
  const absl::flat_hash_map<std::string, int> groups = job::GroupIndices(job);
  for (int i = 0; i < placement.parameters_size(); ++i) {
    const v1::ParameterPlacement& parameter = placement.parameters(i);
    const std::string& name = job.parameters(i).name();
    if (parameter.parameter_id() != static_cast<uint32_t>(i)) {
      return absl::InvalidArgumentError(absl::StrCat("placement ", i, " is of parameter_id ",
                                                     parameter.parameter_id(), ", expecting ", i));
    }
    if (parameter.shard() >= num_shards) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", name, " is placed on shard ",
                                                     parameter.shard(), ", there are ",
                                                     num_shards));
    }
    const bool known = groups.contains(parameter.group());
    if (job.parameters(i).frozen() ? !parameter.group().empty() : !known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", name, " is routed to group '", proto::Excerpt(parameter.group()),
          "', expecting ", job.parameters(i).frozen() ? "none" : "one of the job's"));
    }
  }
  return absl::OkStatus();
}

// Rejects a norm group that the job does not declare ([C3]).
absl::Status CheckNormGroups(const v1::RegisterBody& registration) {
  const std::vector<std::string> known = job::NormGroupNames(registration.definition());
  for (const v1::ParameterPlacement& parameter : registration.placement().parameters()) {
    if (parameter.group().empty()) continue;
    if (std::find(known.begin(), known.end(), parameter.norm_group()) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter_id ", parameter.parameter_id(), " is placed in norm group '",
                     parameter.norm_group(), "', which the job does not declare"));
  }
  return absl::OkStatus();
}

uint64_t SlotsDigest(kernels::Backend& backend, uint32_t parameter_id,
                     absl::Span<const kernels::Region> slots) {
  uint64_t digest = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    digest += backend.Digest(parameter_id, static_cast<uint32_t>(i) + 1, slots[i]);
  }
  return digest;
}

absl::Status Compare(const StoredParameter& parameter, absl::string_view what, uint64_t is,
                     uint64_t written) {
  if (is == written) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "parameter ", parameter.name, ": its ", what, " in memory have digest ",
      absl::Hex(is, absl::kZeroPad16), ", written were ", absl::Hex(written, absl::kZeroPad16)));
}

}  // namespace

void NoteWeights(kernels::Backend& backend, kernels::ConstRegion weights,
                 StoredParameter& parameter) {
  parameter.weights_digest = backend.Digest(parameter.id, kernels::kWeightSlot, weights);
  parameter.largest_weight_bits = backend.LargestMagnitude(weights);
}

void NoteSlots(kernels::Backend& backend, absl::Span<const kernels::Region> slots,
               StoredParameter& parameter) {
  parameter.slots_digest = SlotsDigest(backend, parameter.id, slots);
}

absl::Status CheckDigests(kernels::Backend& backend, const StoredParameter& parameter,
                          kernels::ConstRegion weights, absl::Span<const kernels::Region> slots) {
  KAON_RETURN_IF_ERROR(Compare(parameter, "weights",
                               backend.Digest(parameter.id, kernels::kWeightSlot, weights),
                               parameter.weights_digest));
  return Compare(parameter, "moments", SlotsDigest(backend, parameter.id, slots),
                 parameter.slots_digest);
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(
    const Homes& homes, kernels::Backend& backend, const v1::RegisterBody& registration,
    uint32_t shard, uint32_t num_shards) {
  KAON_RETURN_IF_ERROR(job::ValidateJob(registration.definition()).status());
  KAON_RETURN_IF_ERROR(CheckPlacement(registration, num_shards));
  KAON_RETURN_IF_ERROR(CheckNormGroups(registration));
  std::unique_ptr<ParameterStore> store(new ParameterStore(homes, backend));
  for (const v1::ParameterPlacement& placement : registration.placement().parameters()) {
    if (placement.shard() != shard) continue;
    KAON_RETURN_IF_ERROR(store->Add(registration, placement));
  }
  const std::vector<HomePlace> places = store->ChoosePlaces();
  for (size_t i = 0; i < places.size(); ++i) {
    StoredParameter& parameter = store->parameters_[i];
    KAON_ASSIGN_OR_RETURN(parameter.place, store->AllocatePlace(parameter, places[i]));
    if (places[i] != HomePlace::kMemory) store->uses_disk_ = true;
  }
  return store;
}

ParameterStore::~ParameterStore() {
  store_.Release(workspace_bytes_);
  if (nvme_ != nullptr) nvme_->Clear();
}

absl::Status ParameterStore::Add(const v1::RegisterBody& registration,
                                 const v1::ParameterPlacement& placement) {
  const v1::JobDefinition& job = registration.definition();
  const v1::ParameterSpec& spec = job.parameters(static_cast<int>(placement.parameter_id()));
  StoredParameter& parameter = parameters_.emplace_back();
  parameter.id = placement.parameter_id();
  parameter.name = spec.name();
  parameter.shape.assign(spec.shape().begin(), spec.shape().end());
  parameter.num_elements = job::NumElements(spec);
  // Includes the gradient's sum, which GradientAccumulator allocates.
  parameter.state_bytes = parameter.weight_bytes() * (spec.frozen() ? 2 : 3);
  if (spec.frozen()) return absl::OkStatus();
  parameter.group = job::GroupIndex(job, placement.group());
  parameter.rule = job::RuleConfigOf(job.groups(parameter.group), spec, placement);
  KAON_ASSIGN_OR_RETURN(parameter.wish, WishOf(job.groups(parameter.group)));
  KAON_RETURN_IF_ERROR(kernels::ValidateRule(*parameter.rule, parameter.shape));
  parameter.state_slots = kernels::StateSlots(*parameter.rule, parameter.shape);
  // The state is of zeros, an element of the digest for each word of 32 bits.
  for (size_t i = 0; i < parameter.state_slots.size(); ++i) {
    const kernels::TensorDigester digester(parameter.id, static_cast<uint32_t>(i) + 1);
    parameter.state_bytes += static_cast<uint64_t>(parameter.state_slots[i].num_bytes);
    parameter.slots_digest +=
        digester.OfProducts(0, (parameter.state_slots[i].num_bytes + 3) / 4, 0);
  }
  return absl::OkStatus();
}

std::vector<HomePlace> ParameterStore::ChoosePlaces() {
  if (nvme_ == nullptr) return std::vector<HomePlace>(parameters_.size(), HomePlace::kMemory);
  std::vector<HomeNeeds> homes;
  // All parameters need this memory, wherever they live.
  const std::vector<StoredParameter*> forward = StepOrder(false);
  const std::vector<StoredParameter*> backward = StepOrder(true);
  const uint64_t fixed =
      std::max(MostWorkspace(forward, true).first, MostWorkspace(backward, true).first);
  for (const StoredParameter& parameter : parameters_) {
    HomeNeeds& needs = homes.emplace_back();
    needs.wish = parameter.wish;
    const uint64_t weights = tier::HostExtentBytes(parameter.weight_bytes());
    // Includes the sum of its gradients, or of its initial weights.
    needs.others = weights * (parameter.rule.has_value() ? 3 : 2);
    for (const kernels::StateSlot& slot : parameter.state_slots) {
      needs.state += tier::HostExtentBytes(static_cast<uint64_t>(slot.num_bytes));
    }
    // One version of the weights and the sum, written and read.
    if (parameter.rule.has_value()) needs.others_moved = 4 * weights;
  }
  const uint64_t free = store_.capacity_bytes() - store_.used_bytes();
  return shard::ChoosePlaces(homes, free - std::min(free, fixed));
}

absl::StatusOr<HomeWish> ParameterStore::WishOf(const v1::ParameterGroup& group) const {
  const bool on_host = backend_.space() == kernels::Space::kHost;
  absl::string_view missing;
  switch (group.tier()) {
    case v1::TIER_HOST:
      if (on_host) return HomeWish::kMemory;
      missing = "computes on the memory of a device; start it with --memory-tier host";
      break;
    case v1::TIER_DEVICE:
      if (!on_host) return HomeWish::kMemory;
      missing = "computes on the memory of the host; start it with --device";
      break;
    case v1::TIER_NVME:
      if (nvme_ != nullptr) return HomeWish::kDisk;
      missing = "has no disk for parameters; start it with --nvme-dirs and --nvme-bytes";
      break;
    default:
      return HomeWish::kNone;
  }
  return absl::ResourceExhaustedError(absl::StrCat("group ", group.name(), " has tier ",
                                                   job::NameOf(group.tier()), ", and this shard ",
                                                   missing, ", or leave the tier unset"));
}

absl::StatusOr<StoredPlace> ParameterStore::AllocatePlace(const StoredParameter& parameter,
                                                          HomePlace place) {
  tier::MemoryHome::Unit unit;
  unit.name = absl::StrCat(parameter.id);
  // A parameter that moves has two places for a moment.
  if (++places_ > parameters_.size()) absl::StrAppend(&unit.name, ".", places_);
  unit.weight_bytes = parameter.weight_bytes();
  unit.is_written_once = !parameter.rule.has_value();
  for (const kernels::StateSlot& slot : parameter.state_slots) {
    unit.state.emplace_back(slot.name, static_cast<uint64_t>(slot.num_bytes));
  }
  StoredPlace allocated;
  const auto about = [&](const absl::Status& status) {
    FreePlace(allocated);
    return absl::Status(status.code(),
                        absl::StrCat("parameter ", parameter.name, ": ", status.message()));
  };
  if (place == HomePlace::kMemory) {
    if (parameter.place.state_unit.has_value()) {
      unit.state.clear();
      unit.shared_state = memory_.state(*parameter.place.state_unit);
    }
    const absl::StatusOr<tier::UnitId> added = memory_.Add(unit);
    if (!added.ok()) return about(added.status());
    return StoredPlace{&memory_, *added, std::nullopt};
  }
  std::vector<uint64_t> state_bytes;
  std::vector<kernels::Region> state_in_memory;
  if (place == HomePlace::kDisk) {
    for (const auto& [name, bytes] : unit.state) state_bytes.push_back(bytes);
  } else {
    unit.weight_bytes = 0;
    const absl::StatusOr<tier::UnitId> state = memory_.Add(unit);
    if (!state.ok()) return about(state.status());
    allocated.state_unit = *state;
    state_in_memory = memory_.state(*state);
  }
  const absl::StatusOr<tier::UnitId> added =
      nvme_->Add(parameter.name, parameter.weight_bytes(), state_bytes, std::move(state_in_memory));
  if (!added.ok()) return about(added.status());
  allocated.home = nvme_;
  allocated.unit = *added;
  return allocated;
}

void ParameterStore::FreePlace(const StoredPlace& place) {
  if (place.home != nullptr) place.home->Remove(place.unit);
  if (place.state_unit.has_value()) memory_.Remove(*place.state_unit);
}

absl::Status ParameterStore::UseDisk() {
  const uint64_t most = std::max(MostWorkspace(StepOrder(false), true).first,
                                 MostWorkspace(StepOrder(true), true).first);
  if (most > workspace_bytes_) {
    KAON_RETURN_IF_ERROR(store_.Claim(most - workspace_bytes_));
    workspace_bytes_ = most;
  }
  uses_disk_ = true;
  return absl::OkStatus();
}

void ParameterStore::NoteMoved() {
  uses_disk_ = !OnDisk().empty();
  if (uses_disk_) return;
  reversed_ = false;
  const uint64_t most = MostWorkspace(StepOrder(false), false).first;
  if (most < workspace_bytes_) {
    store_.Release(workspace_bytes_ - most);
    workspace_bytes_ = most;
  }
}

std::vector<kernels::SizedUpdate> ParameterStore::SizedUpdates(
    absl::Span<StoredParameter* const> parameters) {
  std::vector<kernels::SizedUpdate> updates;
  updates.reserve(parameters.size());
  for (const StoredParameter* parameter : parameters) {
    updates.push_back(
        {parameter->rule.has_value() ? &*parameter->rule : nullptr, parameter->shape});
  }
  return updates;
}

std::vector<StoredParameter*> ParameterStore::StepOrder(bool reversed) {
  std::vector<StoredParameter*> order;
  order.reserve(parameters_.size());
  for (StoredParameter& parameter : parameters_) order.push_back(&parameter);
  if (reversed) std::reverse(order.begin(), order.end());
  return order;
}

std::vector<StoredParameter*> ParameterStore::TakeStepOrder(bool applied) {
  std::vector<StoredParameter*> order = StepOrder(reversed_);
  if (uses_disk_ && applied) reversed_ = !reversed_;
  return order;
}

void ParameterStore::Prefetch() {
  if (!uses_disk_) return;
  std::vector<tier::UnitId> units;
  for (const StoredParameter* parameter : StepOrder(reversed_)) {
    const bool is_stepped = parameter->rule.has_value();
    if (is_stepped && parameter->place.home == nvme_) units.push_back(parameter->place.unit);
  }
  nvme_->Prefetch(units);
}

size_t ParameterStore::NumPinnable(absl::Span<StoredParameter* const> parameters) const {
  if (!uses_disk_) return parameters.size();
  std::vector<tier::UnitId> units;
  std::vector<size_t> ends;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]->place.home != nvme_) continue;
    units.push_back(parameters[i]->place.unit);
    ends.push_back(i);
  }
  const size_t count = units.empty() ? 0 : nvme_->NumPinnable(units);
  return count == units.size() ? parameters.size() : ends[count];
}

std::pair<uint64_t, absl::Span<StoredParameter* const>> ParameterStore::MostWorkspace(
    absl::Span<StoredParameter* const> order, bool any_group) const {
  std::pair<uint64_t, absl::Span<StoredParameter* const>> most;
  const std::vector<kernels::SizedUpdate> updates = SizedUpdates(order);
  while (!order.empty()) {
    const auto first = absl::MakeConstSpan(updates).last(order.size());
    const size_t count = backend_.NumConcurrentUpdates(first);
    const uint64_t bytes = backend_.WorkspaceBytes(first.first(count));
    if (bytes > most.first) most = {bytes, order.first(count)};
    if (any_group) {
      const uint64_t alone = backend_.WorkspaceBytes(first.first(1));
      if (alone > most.first) most = {alone, order.first(1)};
    }
    order.remove_prefix(any_group ? 1 : count);
  }
  return most;
}

absl::Status ParameterStore::ReserveWorkspace() {
  CHECK_EQ(workspace_bytes_, 0u);
  const std::vector<StoredParameter*> forward = StepOrder(false);
  const std::vector<StoredParameter*> backward = StepOrder(true);
  auto [most, needs_most] = MostWorkspace(forward, uses_disk_);
  if (uses_disk_) {
    const auto other = MostWorkspace(backward, true);
    if (other.first > most) std::tie(most, needs_most) = other;
  }
  const absl::Status status = store_.Claim(most);
  if (!status.ok()) {
    const std::string who =
        needs_most.size() == 1
            ? absl::StrCat("parameter ", needs_most.front()->name, ": an update takes ")
            : absl::StrCat("parameters ", needs_most.front()->name, " .. ", needs_most.back()->name,
                           ": their updates side by side take ");
    return absl::Status(status.code(),
                        absl::StrCat(who, most, " bytes beside the tensors: ", status.message()));
  }
  workspace_bytes_ = most;
  return backend_.Reserve(SizedUpdates(forward));
}

void ParameterStore::SetGroups(const v1::RegisterBody& registration) {
  const v1::JobDefinition& job = registration.definition();
  for (StoredParameter& parameter : parameters_) {
    if (!parameter.rule.has_value()) continue;
    const int id = static_cast<int>(parameter.id);
    parameter.rule = job::RuleConfigOf(job.groups(parameter.group), job.parameters(id),
                                       registration.placement().parameters(id));
  }
}

StoredParameter* ParameterStore::Find(uint32_t parameter_id) {
  const auto found = std::lower_bound(
      parameters_.begin(), parameters_.end(), parameter_id,
      [](const StoredParameter& parameter, uint32_t id) { return parameter.id < id; });
  return found != parameters_.end() && found->id == parameter_id ? &*found : nullptr;
}

const StoredParameter& ParameterStore::Get(uint32_t parameter_id) const {
  const StoredParameter* const found = const_cast<ParameterStore*>(this)->Find(parameter_id);
  CHECK(found != nullptr) << "parameter_id " << parameter_id;
  return *found;
}

std::set<uint32_t> ParameterStore::OnDisk() const {
  std::set<uint32_t> ids;
  for (const StoredParameter& parameter : parameters_) {
    if (parameter.place.home == nvme_) ids.insert(parameter.id);
  }
  return ids;
}

std::vector<ParameterPublisher::Source> ParameterStore::sources() const {
  std::vector<ParameterPublisher::Source> sources;
  for (const StoredParameter& parameter : parameters_) {
    ParameterPublisher::Source source;
    source.parameter_id = parameter.id;
    source.name = parameter.name;
    source.num_elements = parameter.num_elements;
    source.home = parameter.place.home;
    source.unit = parameter.place.unit;
    sources.push_back(std::move(source));
  }
  return sources;
}

StateDigests ParameterStore::Digests() const {
  StateDigests digests;
  for (const StoredParameter& parameter : parameters_) {
    digests.weights += parameter.weights_digest;
    digests.state += parameter.slots_digest;
    digests.state +=
        kernels::FactDigest(parameter.id, kernels::kUpdatesSlot, parameter.updates_applied);
  }
  digests.state += digests.weights;
  return digests;
}

uint64_t ParameterStore::PositionDigest(uint64_t applied_position) const {
  uint64_t digest = 0;
  // Digest each parameter separately, so that the sum over shards does not depend on their number.
  for (const StoredParameter& parameter : parameters_) {
    digest += kernels::FactDigest(parameter.id, kernels::kPositionSlot, applied_position);
  }
  return digest;
}

std::vector<v1::ParameterState> ParameterStore::Describe() const {
  std::vector<v1::ParameterState> described;
  for (const StoredParameter& parameter : parameters_) {
    v1::ParameterState& state = described.emplace_back();
    state.set_parameter_id(parameter.id);
    state.set_state_bytes(parameter.state_bytes);
    state.set_updates_applied(parameter.updates_applied);
    state.set_newton_schulz_updates(parameter.newton_schulz_updates);
    state.set_tier(std::string(parameter.place.home->name()));
  }
  return described;
}

}  // namespace kaon::shard
