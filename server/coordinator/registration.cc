#include "server/coordinator/registration.h"

#include <google/protobuf/util/message_differencer.h>

#include <utility>
#include <vector>

#include "client/job_schema.h"
#include "kaon/v1/coordinator.pb.h"
#include "kernels/optimizer_rule.h"
#include "kernels/routing.h"
#include "proto/status_macros.h"

namespace kaon::coordinator {

namespace {

// Fractions of one element's element-wise update (about 1 ns on one core): state is streamed at
// tens of GB/s, the wire with CRC and fold runs at about 4 GB/s per core.
constexpr double kCostPerStateByte = 1.0 / 32;
constexpr double kCostPerWireByte = 1.0 / 4;
constexpr uint64_t kBytesPerElement = 4;
// Versions t and t-1 of the weight lie side by side.
constexpr uint64_t kWeightBuffers = 2;

// Every option written out, so that two definitions that mean the same compare equal.
v1::JobDefinition Normalized(const v1::JobDefinition& definition) {
  v1::JobDescription description;
  *description.mutable_definition() = definition;
  return client::ToProto(client::FromProto(description).definition);
}

PlacementItem ItemOf(const v1::JobDefinition& job, const v1::ParameterSpec& parameter,
                     const kernels::Route& route) {
  const uint64_t num_elements = client::NumElements(parameter);
  PlacementItem item;
  item.name = parameter.name();
  uint64_t buffers = kWeightBuffers;
  uint64_t wire_elements = num_elements;  // Pulled by each worker.
  if (!parameter.frozen()) {
    const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
    const kernels::RuleConfig rule =
        client::RuleConfigOf(job.groups(client::GroupIndex(job, route.group)), parameter);
    item.cost = kernels::UpdateCost(rule, shape);
    buffers += 1 + kernels::StateSlots(rule, shape).size();
    wire_elements += num_elements;
  }
  item.state_bytes = buffers * num_elements * kBytesPerElement;
  const double wire_bytes =
      static_cast<double>(wire_elements * kBytesPerElement) * job.world_size();
  item.cost += kCostPerStateByte * static_cast<double>(item.state_bytes);
  item.cost += kCostPerWireByte * wire_bytes;
  return item;
}

}  // namespace

absl::StatusOr<v1::RegisterBody> MakeRegistration(const v1::JobDefinition& definition,
                                                  const PlacementLimits& limits) {
  KAON_RETURN_IF_ERROR(client::ValidateJob(definition));
  v1::RegisterBody body;
  *body.mutable_definition() = Normalized(definition);
  const v1::JobDefinition& job = body.definition();
  KAON_ASSIGN_OR_RETURN(const std::vector<kernels::Route> routes, client::RouteParameters(job));

  std::vector<PlacementItem> items;
  items.reserve(routes.size());
  for (int id = 0; id < job.parameters_size(); ++id) {
    items.push_back(ItemOf(job, job.parameters(id), routes[id]));
  }
  KAON_ASSIGN_OR_RETURN(const std::vector<int> shard_of, PlaceParameters(items, limits));

  body.mutable_placement()->set_num_shards(limits.num_shards);
  for (size_t id = 0; id < routes.size(); ++id) {
    v1::ParameterPlacement& row = *body.mutable_placement()->add_parameters();
    row.set_parameter_id(id);
    row.set_group(routes[id].group);
    row.set_route_reason(routes[id].reason);
    row.set_shard(shard_of[id]);
  }
  return body;
}

std::string FirstDifference(const v1::JobDefinition& registered,
                            const v1::JobDefinition& requested) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(Normalized(registered), Normalized(requested))) return "";
  return differences.substr(0, differences.find('\n'));
}

}  // namespace kaon::coordinator
