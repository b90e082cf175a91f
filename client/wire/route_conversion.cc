#include "client/wire/route_conversion.h"

#include <string>

#include "absl/container/flat_hash_map.h"
#include "job/definition.h"
#include "job/rule_config.h"
#include "kernels/optimizer_rule.h"

namespace kaon::client {
namespace {

// Fills the fields that follow from the parameter's group.
void FillRule(const v1::ParameterGroup& group, const v1::ParameterSpec& parameter,
              const v1::ParameterPlacement& wire, kaon::ParameterRoute& route) {
  route.clip_exempt = job::IsClipExempt(group);
  const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
  const kernels::RuleConfig rule = job::RuleConfigOf(group, parameter, wire);
  for (const kernels::ScaledMatrices& matrices : kernels::OrthogonalizedMatrices(rule, shape)) {
    route.blocks.push_back({static_cast<uint64_t>(matrices.rows),
                            static_cast<uint64_t>(matrices.cols),
                            static_cast<uint64_t>(matrices.count), matrices.scale});
  }
}

kaon::ParameterRoute RouteFromProto(const v1::ParameterPlacement& wire) {
  kaon::ParameterRoute route;
  route.group = wire.group();
  route.reason = wire.route_reason();
  route.shard = wire.shard();
  route.norm_group = wire.norm_group();
  if (wire.has_layout()) route.layout = LayoutFromProto(wire.layout());
  route.lr_multiplier = wire.lr_multiplier();
  route.weight_decay_multiplier = wire.weight_decay_multiplier();
  route.counted = wire.counted();
  return route;
}

}  // namespace

v1::MatrixLayout LayoutToProto(const kaon::MatrixLayout& layout) {
  v1::MatrixLayout wire;
  wire.set_kind(static_cast<v1::MatrixLayoutKind>(layout.kind));
  for (uint64_t size : layout.sizes) wire.add_sizes(size);
  wire.set_num_heads(layout.num_heads);
  return wire;
}

kaon::MatrixLayout LayoutFromProto(const v1::MatrixLayout& wire) {
  kaon::MatrixLayout layout;
  layout.kind = static_cast<kaon::MatrixLayoutKind>(wire.kind());
  layout.sizes.assign(wire.sizes().begin(), wire.sizes().end());
  layout.num_heads = wire.num_heads();
  return layout;
}

std::vector<kaon::ParameterRoute> RoutesFromProto(const v1::JobDescription& description) {
  const v1::JobDefinition& job = description.definition();
  const absl::flat_hash_map<std::string, int> groups = job::GroupIndices(job);
  std::vector<kaon::ParameterRoute> routes(job.parameters_size());
  for (const v1::ParameterPlacement& wire : description.placement().parameters()) {
    if (wire.parameter_id() >= routes.size()) continue;
    const v1::ParameterSpec& parameter = job.parameters(static_cast<int>(wire.parameter_id()));
    kaon::ParameterRoute& route = routes[wire.parameter_id()];
    route = RouteFromProto(wire);
    route.transposed = parameter.transposed();
    const auto group = groups.find(wire.group());
    if (group != groups.end()) FillRule(job.groups(group->second), parameter, wire, route);
  }
  return routes;
}

}  // namespace kaon::client
