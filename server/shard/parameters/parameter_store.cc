#include "server/shard/parameters/parameter_store.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/norm_use.h"
#include "job/rule_config.h"
#include "job/validation.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "proto/text.h"

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

}  // namespace

void NoteWeights(kernels::Backend& backend, kernels::ConstRegion weights,
                 StoredParameter& parameter) {
  parameter.weights_digest = backend.Digest(parameter.id, kernels::kWeightSlot, weights);
  parameter.largest_weight_bits = backend.LargestMagnitude(weights);
}

void NoteSlots(kernels::Backend& backend, StoredParameter& parameter) {
  parameter.slots_digest = 0;
  for (size_t i = 0; i < parameter.state.size(); ++i) {
    parameter.slots_digest +=
        backend.Digest(parameter.id, static_cast<uint32_t>(i) + 1, parameter.slot(i));
  }
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(
    tier::TieredStore& store, kernels::Backend& backend, const v1::RegisterBody& registration,
    uint32_t shard, uint32_t num_shards) {
  KAON_RETURN_IF_ERROR(job::ValidateJob(registration.definition()).status());
  KAON_RETURN_IF_ERROR(CheckPlacement(registration, num_shards));
  KAON_RETURN_IF_ERROR(CheckNormGroups(registration));
  std::unique_ptr<ParameterStore> parameters(new ParameterStore(store, backend));
  for (const v1::ParameterPlacement& placement : registration.placement().parameters()) {
    if (placement.shard() != shard) continue;
    KAON_RETURN_IF_ERROR(parameters->Add(registration, placement));
  }
  return parameters;
}

ParameterStore::~ParameterStore() {
  store_.Release(workspace_bytes_);
  for (StoredParameter& parameter : parameters_) {
    parameter.weights.clear();
    parameter.state.clear();
    for (const std::string& name : parameter.tensor_names) {
      const absl::Status status = store_.Free(name);
      CHECK(status.ok()) << status;
    }
  }
}

absl::StatusOr<tier::Pin> ParameterStore::AllocateTensor(const std::string& tensor,
                                                         uint64_t num_elements,
                                                         StoredParameter* parameter) {
  const absl::Status status = store_.Allocate(tensor, num_elements);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("parameter ", parameter->name, ": ", status.message()));
  }
  parameter->tensor_names.push_back(tensor);
  parameter->state_bytes += num_elements * sizeof(float);
  return store_.Pin(tensor);
}

absl::Status ParameterStore::Add(const v1::RegisterBody& registration,
                                 const v1::ParameterPlacement& placement) {
  const v1::JobDefinition& job = registration.definition();
  const v1::ParameterSpec& spec = job.parameters(static_cast<int>(placement.parameter_id()));
  // Add it to the list before any allocation, so that the destructor frees everything after a later
  // error.
  StoredParameter& parameter = parameters_.emplace_back();
  parameter.id = placement.parameter_id();
  parameter.name = spec.name();
  parameter.shape.assign(spec.shape().begin(), spec.shape().end());
  const uint64_t num_elements = job::NumElements(spec);
  parameter.num_elements = num_elements;
  // Includes the gradient's sum, which GradientAccumulator allocates.
  parameter.state_bytes = num_elements * sizeof(float);
  const int num_buffers = spec.frozen() ? 1 : 2;
  for (int i = 0; i < num_buffers; ++i) {
    const std::string tensor = absl::StrCat("weight.", i, "/", parameter.id);
    KAON_ASSIGN_OR_RETURN(tier::Pin pin, AllocateTensor(tensor, num_elements, &parameter));
    parameter.weights.push_back(std::move(pin));
  }
  if (spec.frozen()) return absl::OkStatus();
  parameter.group = job::GroupIndex(job, placement.group());
  parameter.rule = job::RuleConfigOf(job.groups(parameter.group), spec, placement);
  KAON_RETURN_IF_ERROR(kernels::ValidateRule(*parameter.rule, parameter.shape));
  for (const kernels::StateSlot& slot : kernels::StateSlots(*parameter.rule, parameter.shape)) {
    const std::string tensor = absl::StrCat(slot.name, "/", parameter.id);
    // Tiers count in floats.
    const uint64_t floats =
        (static_cast<uint64_t>(slot.num_bytes) + sizeof(float) - 1) / sizeof(float);
    KAON_ASSIGN_OR_RETURN(tier::Pin pin, AllocateTensor(tensor, floats, &parameter));
    parameter.state_slots.push_back(slot);
    parameter.state.push_back(std::move(pin));
  }
  NoteSlots(backend_, parameter);
  return absl::OkStatus();
}

std::vector<kernels::SizedUpdate> ParameterStore::SizedUpdates() const {
  std::vector<kernels::SizedUpdate> updates;
  updates.reserve(parameters_.size());
  for (const StoredParameter& parameter : parameters_) {
    updates.push_back({parameter.rule.has_value() ? &*parameter.rule : nullptr, parameter.shape});
  }
  return updates;
}

absl::Status ParameterStore::ReserveWorkspace() {
  CHECK_EQ(workspace_bytes_, 0u);
  uint64_t most = 0;
  absl::Span<const StoredParameter> needs_most;
  absl::Span<const StoredParameter> rest = parameters_;
  const std::vector<kernels::SizedUpdate> updates = SizedUpdates();
  while (!rest.empty()) {
    const auto first = absl::MakeConstSpan(updates).last(rest.size());
    const size_t count = backend_.NumConcurrentUpdates(first);
    const uint64_t bytes = backend_.WorkspaceBytes(first.first(count));
    if (bytes > most) {
      most = bytes;
      needs_most = rest.first(count);
    }
    rest.remove_prefix(count);
  }
  const absl::Status status = store_.Claim(most);
  if (!status.ok()) {
    const std::string who =
        needs_most.size() == 1
            ? absl::StrCat("parameter ", needs_most.front().name, ": an update takes ")
            : absl::StrCat("parameters ", needs_most.front().name, " .. ", needs_most.back().name,
                           ": their updates side by side take ");
    return absl::Status(status.code(),
                        absl::StrCat(who, most, " bytes beside the tensors: ", status.message()));
  }
  workspace_bytes_ = most;
  return backend_.Reserve(updates);
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

const StoredParameter& ParameterStore::Get(uint32_t parameter_id) const {
  const auto found = std::lower_bound(
      parameters_.begin(), parameters_.end(), parameter_id,
      [](const StoredParameter& parameter, uint32_t id) { return parameter.id < id; });
  CHECK(found != parameters_.end() && found->id == parameter_id) << "parameter_id " << parameter_id;
  return *found;
}

std::vector<ParameterPublisher::Source> ParameterStore::sources() const {
  std::vector<ParameterPublisher::Source> sources;
  for (const StoredParameter& parameter : parameters_) {
    ParameterPublisher::Source source;
    source.parameter_id = parameter.id;
    source.name = parameter.name;
    source.first = parameter.weights[0].region();
    if (parameter.weights.size() > 1) source.second = parameter.weights[1].region();
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
  }
  return described;
}

}  // namespace kaon::shard
