#include "server/coordinator/machine/registration.h"

#include <google/protobuf/util/message_differencer.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "job/definition.h"
#include "job/effective_job.h"
#include "job/resolve.h"
#include "job/rule_config.h"
#include "job/workers.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"

namespace kaon::coordinator {

namespace {

// Costs are fractions of one element's element-wise update, about 1 ns on one core. State is
// streamed at tens of GB/s; the wire with CRC and fold runs at about 4 GB/s per core.
constexpr double kCostPerStateByte = 1.0 / 32;
constexpr double kCostPerWireByte = 1.0 / 4;
constexpr uint64_t kBytesPerElement = 4;
// A shard holds versions t and t-1 of the weight.
constexpr uint64_t kWeightBuffers = 2;

// `group` is null for a frozen parameter.
PlacementItem ItemOf(uint32_t world_size, const v1::ParameterSpec& parameter,
                     const v1::ParameterPlacement& route, const v1::ParameterGroup* group) {
  const uint64_t num_elements = job::NumElements(parameter);
  PlacementItem item;
  item.name = parameter.name();
  uint64_t buffers = kWeightBuffers;
  uint64_t wire_elements = num_elements;  // Each worker pulls them.
  if (group != nullptr) {
    const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
    const kernels::RuleConfig rule = job::RuleConfigOf(*group, parameter, route);
    item.cost = kernels::UpdateCost(rule, shape);
    for (const kernels::StateSlot& slot : kernels::StateSlots(rule, shape)) {
      item.state_bytes += static_cast<uint64_t>(slot.num_bytes);
    }
    buffers += 1;
    wire_elements += num_elements;
  }
  item.state_bytes += buffers * num_elements * kBytesPerElement;
  const double wire_bytes = static_cast<double>(wire_elements * kBytesPerElement) * world_size;
  item.cost += kCostPerStateByte * static_cast<double>(item.state_bytes);
  item.cost += kCostPerWireByte * wire_bytes;
  return item;
}

// A worker that restarts may name the workers that were registered, or the present ones. Only
// admins pause the job.
void AgreeOnWorkers(const v1::JobDefinition& present, const v1::JobDefinition& there_is,
                    v1::JobDefinition& other) {
  v1::JobDefinition workers = job::WorkersOf(other);
  const bool same_loss = workers.worker_loss() == present.worker_loss() &&
                         workers.worker_loss_seconds() == present.worker_loss_seconds() &&
                         workers.step_seconds() == present.step_seconds();
  if (same_loss) workers = job::WorkersOf(there_is);
  const bool same_size = other.world_size() == present.world_size();
  workers.set_world_size(same_size ? there_is.world_size() : other.world_size());
  workers.set_paused(there_is.paused());
  job::SetWorkers(workers, other);
}

}  // namespace

absl::StatusOr<v1::RegisterBody> MakeRegistration(const v1::JobDefinition& definition,
                                                  const PlacementLimits& limits) {
  KAON_ASSIGN_OR_RETURN(v1::RegisterBody body, job::Resolve(definition));
  // Only admins pause a job.
  body.mutable_definition()->clear_paused();
  body.mutable_requested()->clear_paused();
  KAON_RETURN_IF_ERROR(PlaceOnShards(limits, body));
  return body;
}

// protocol.md 2.2: "An entry that changes the shard set needs the PREPARE of old and new shards".
// There is no such entry: a job stays on the shards that it is placed on here (ADR 0028).
absl::Status PlaceOnShards(const PlacementLimits& limits, v1::RegisterBody& body) {
  const v1::JobDefinition& job = body.definition();
  const absl::flat_hash_map<std::string, int> groups = job::GroupIndices(job);
  std::vector<PlacementItem> items;
  items.reserve(job.parameters_size());
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterPlacement& route = body.placement().parameters(id);
    const auto group = groups.find(route.group());
    items.push_back(ItemOf(job.world_size(), job.parameters(id), route,
                           group == groups.end() ? nullptr : &job.groups(group->second)));
  }
  KAON_ASSIGN_OR_RETURN(const std::vector<int> shard_of, PlaceParameters(items, limits));

  body.mutable_placement()->set_num_shards(limits.num_shards);
  for (int id = 0; id < job.parameters_size(); ++id) {
    body.mutable_placement()->mutable_parameters(id)->set_shard(
        static_cast<uint32_t>(shard_of[id]));
  }
  return absl::OkStatus();
}

std::string FirstDifference(const v1::RegisterBody& registered,
                            const v1::JobDefinition& requested) {
  v1::JobDefinition original = registered.requested();
  // The kept request has no parameters, as they never change.
  *original.mutable_parameters() = registered.definition().parameters();
  job::ReplaceUnknownForms(registered.definition(), original);
  absl::StatusOr<v1::JobDefinition> there_is = job::Effective(original);
  if (!there_is.ok()) return std::string(there_is.status().message());
  absl::StatusOr<v1::JobDefinition> other = job::Effective(requested);
  if (!other.ok()) return std::string(other.status().message());
  AgreeOnWorkers(registered.definition(), *there_is, *other);
  // The quick comparison of bytes serves each worker but the first.
  if (there_is->SerializeAsString() == other->SerializeAsString()) return "";
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(*there_is, *other)) return "";
  return differences.substr(0, differences.find('\n'));
}

std::string RepeatedComparison::FirstDifference(const v1::RegisterBody& registered,
                                                const v1::JobDefinition& requested) {
  std::pair<std::string, std::string> both = {registered.SerializeAsString(),
                                              requested.SerializeAsString()};
  if (both == equal_) return "";
  std::string difference = coordinator::FirstDifference(registered, requested);
  if (difference.empty()) equal_ = std::move(both);
  return difference;
}

bool DifferInWorkersAlone(const v1::RegisterBody& registered, const v1::JobDefinition& requested) {
  v1::JobDefinition same = requested;
  job::SetWorkers(registered.definition(), same);
  return FirstDifference(registered, same).empty();
}

}  // namespace kaon::coordinator
