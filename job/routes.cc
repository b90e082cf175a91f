#include "job/routes.h"

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "kernels/routing.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

absl::StatusOr<v1::ParameterPlacement> RouteOf(const v1::JobDefinition& job,
                                               const v1::ParameterSpec& parameter) {
  const kernels::RoutingTargets targets = {job.matrix_group(), job.scalar_group()};
  kernels::RoutingInput input;
  input.name = parameter.name();
  input.shape.assign(parameter.shape().begin(), parameter.shape().end());
  input.group = parameter.group();
  input.is_embedding_or_output = parameter.is_embedding_or_output();
  input.frozen = parameter.frozen();
  KAON_ASSIGN_OR_RETURN(const kernels::Route route, kernels::RouteParameter(input, targets));
  v1::ParameterPlacement row;
  row.set_group(route.group);
  row.set_route_reason(route.reason);
  if (route.group.empty()) return row;
  const int group = GroupIndex(job, route.group);
  if (group < 0) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name(), ": group is \"",
                                                   route.group, "\", which is none of the job's ",
                                                   job.groups_size(), " groups"));
  }
  row.set_norm_group(parameter.norm_group().empty() ? job.groups(group).norm_group()
                                                    : parameter.norm_group());
  if (job.groups(group).rule() == v1::RULE_MUON) {
    *row.mutable_layout() = parameter.layout();
    if (row.layout().kind() == v1::MATRIX_LAYOUT_KIND_UNSPECIFIED) {
      row.mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_MATRIX);
    }
  }
  row.set_lr_multiplier(parameter.has_lr_multiplier() ? parameter.lr_multiplier() : 1);
  row.set_weight_decay_multiplier(
      parameter.has_weight_decay_multiplier() ? parameter.weight_decay_multiplier() : 1);
  row.set_counted(parameter.tied_to().empty());
  return row;
}

}  // namespace

absl::StatusOr<v1::Placement> RouteParameters(const v1::JobDefinition& job) {
  v1::Placement placement;
  for (int id = 0; id < job.parameters_size(); ++id) {
    KAON_ASSIGN_OR_RETURN(v1::ParameterPlacement row, RouteOf(job, job.parameters(id)));
    row.set_parameter_id(static_cast<uint32_t>(id));
    *placement.add_parameters() = std::move(row);
  }
  return placement;
}

}  // namespace kaon::job
