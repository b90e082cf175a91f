#include "client/wire/job_conversion.h"

#include "client/wire/group_conversion.h"
#include "client/wire/route_conversion.h"

namespace kaon::client {
namespace {

v1::ParameterSpec ParameterToProto(const kaon::ParameterSpec& parameter) {
  v1::ParameterSpec wire;
  wire.set_name(parameter.name);
  for (uint64_t dimension : parameter.shape) wire.add_shape(dimension);
  wire.set_dtype(static_cast<v1::DType>(parameter.dtype));
  wire.set_group(parameter.group);
  wire.set_transposed(parameter.transposed);
  wire.set_is_embedding_or_output(parameter.is_embedding_or_output);
  wire.set_frozen(parameter.frozen);
  if (parameter.layout) *wire.mutable_layout() = LayoutToProto(*parameter.layout);
  wire.set_norm_group(parameter.norm_group);
  wire.set_tied_to(parameter.tied_to);
  if (parameter.lr_multiplier) wire.set_lr_multiplier(*parameter.lr_multiplier);
  if (parameter.weight_decay_multiplier)
    wire.set_weight_decay_multiplier(*parameter.weight_decay_multiplier);
  for (const std::string& attribute : parameter.attributes) wire.add_attributes(attribute);
  return wire;
}

kaon::ParameterSpec ParameterFromProto(const v1::ParameterSpec& wire) {
  kaon::ParameterSpec parameter;
  parameter.name = wire.name();
  parameter.shape.assign(wire.shape().begin(), wire.shape().end());
  parameter.dtype = static_cast<kaon::DType>(wire.dtype());
  parameter.group = wire.group();
  parameter.transposed = wire.transposed();
  parameter.is_embedding_or_output = wire.is_embedding_or_output();
  parameter.frozen = wire.frozen();
  if (wire.has_layout()) parameter.layout = LayoutFromProto(wire.layout());
  parameter.norm_group = wire.norm_group();
  parameter.tied_to = wire.tied_to();
  if (wire.has_lr_multiplier()) parameter.lr_multiplier = wire.lr_multiplier();
  if (wire.has_weight_decay_multiplier())
    parameter.weight_decay_multiplier = wire.weight_decay_multiplier();
  parameter.attributes.assign(wire.attributes().begin(), wire.attributes().end());
  return parameter;
}

v1::RoutingRule RuleToProto(const kaon::RoutingRule& rule) {
  v1::RoutingRule wire;
  wire.set_name(rule.name);
  wire.set_priority(rule.priority);
  wire.set_name_glob(rule.name_glob);
  wire.set_name_regex(rule.name_regex);
  wire.set_attribute(rule.attribute);
  wire.set_group(rule.group);
  wire.set_norm_group(rule.norm_group);
  if (rule.layout) *wire.mutable_layout() = LayoutToProto(*rule.layout);
  if (rule.min_ndim) wire.set_min_ndim(*rule.min_ndim);
  if (rule.max_ndim) wire.set_max_ndim(*rule.max_ndim);
  if (rule.min_elements) wire.set_min_elements(*rule.min_elements);
  if (rule.max_elements) wire.set_max_elements(*rule.max_elements);
  if (rule.lr_multiplier) wire.set_lr_multiplier(*rule.lr_multiplier);
  if (rule.weight_decay_multiplier) wire.set_weight_decay_multiplier(*rule.weight_decay_multiplier);
  wire.set_may_match_none(rule.may_match_none);
  return wire;
}

kaon::RoutingRule RuleFromProto(const v1::RoutingRule& wire) {
  kaon::RoutingRule rule;
  rule.name = wire.name();
  rule.priority = wire.priority();
  rule.name_glob = wire.name_glob();
  rule.name_regex = wire.name_regex();
  rule.attribute = wire.attribute();
  rule.group = wire.group();
  rule.norm_group = wire.norm_group();
  if (wire.has_layout()) rule.layout = LayoutFromProto(wire.layout());
  if (wire.has_min_ndim()) rule.min_ndim = wire.min_ndim();
  if (wire.has_max_ndim()) rule.max_ndim = wire.max_ndim();
  if (wire.has_min_elements()) rule.min_elements = wire.min_elements();
  if (wire.has_max_elements()) rule.max_elements = wire.max_elements();
  if (wire.has_lr_multiplier()) rule.lr_multiplier = wire.lr_multiplier();
  if (wire.has_weight_decay_multiplier())
    rule.weight_decay_multiplier = wire.weight_decay_multiplier();
  rule.may_match_none = wire.may_match_none();
  return rule;
}

v1::LossScaler ScalerToProto(const kaon::LossScaler& scaler) {
  v1::LossScaler wire;
  wire.set_dynamic(scaler.dynamic);
  if (scaler.initial_scale) wire.set_initial_scale(*scaler.initial_scale);
  if (scaler.min_scale) wire.set_min_scale(*scaler.min_scale);
  if (scaler.growth_interval) wire.set_growth_interval(*scaler.growth_interval);
  if (scaler.hysteresis) wire.set_hysteresis(*scaler.hysteresis);
  return wire;
}

kaon::LossScaler ScalerFromProto(const v1::LossScaler& wire) {
  kaon::LossScaler scaler;
  scaler.dynamic = wire.dynamic();
  if (wire.has_initial_scale()) scaler.initial_scale = wire.initial_scale();
  if (wire.has_min_scale()) scaler.min_scale = wire.min_scale();
  if (wire.has_growth_interval()) scaler.growth_interval = wire.growth_interval();
  if (wire.has_hysteresis()) scaler.hysteresis = wire.hysteresis();
  return scaler;
}

}  // namespace

v1::JobDefinition ToProto(const kaon::JobDefinition& job) {
  v1::JobDefinition wire;
  wire.set_name(job.name);
  for (const kaon::ParameterSpec& parameter : job.parameters) {
    *wire.add_parameters() = ParameterToProto(parameter);
  }
  for (const kaon::ParameterGroup& group : job.groups) *wire.add_groups() = GroupToProto(group);
  wire.set_matrix_group(job.matrix_group);
  wire.set_scalar_group(job.scalar_group);
  wire.set_world_size(job.world_size);
  wire.set_preset(job.preset);
  for (const kaon::RoutingRule& rule : job.routing_rules) {
    *wire.add_routing_rules() = RuleToProto(rule);
  }
  for (const kaon::NormGroup& group : job.norm_groups) {
    v1::NormGroup& added = *wire.add_norm_groups();
    added.set_name(group.name);
    if (group.max_grad_norm) added.set_max_grad_norm(*group.max_grad_norm);
  }
  if (job.max_grad_norm) wire.set_max_grad_norm(*job.max_grad_norm);
  if (job.clip_scope) wire.set_clip_scope(static_cast<v1::ClipScope>(*job.clip_scope));
  if (job.clip_floor) wire.set_clip_floor(*job.clip_floor);
  if (job.grad_norm_skip_threshold)
    wire.set_grad_norm_skip_threshold(*job.grad_norm_skip_threshold);
  if (job.report_norms) wire.set_report_norms(static_cast<v1::ReportNorms>(*job.report_norms));
  if (job.loss_scaler) *wire.mutable_loss_scaler() = ScalerToProto(*job.loss_scaler);
  if (job.worker_loss) wire.set_worker_loss(static_cast<v1::WorkerLossPolicy>(*job.worker_loss));
  if (job.worker_loss_seconds) wire.set_worker_loss_seconds(*job.worker_loss_seconds);
  if (job.step_seconds) wire.set_step_seconds(*job.step_seconds);
  return wire;
}

kaon::JobDefinition FromProto(const v1::JobDefinition& wire) {
  kaon::JobDefinition job;
  job.name = wire.name();
  for (const v1::ParameterSpec& parameter : wire.parameters()) {
    job.parameters.push_back(ParameterFromProto(parameter));
  }
  for (const v1::ParameterGroup& group : wire.groups()) {
    job.groups.push_back(GroupFromProto(group));
  }
  job.matrix_group = wire.matrix_group();
  job.scalar_group = wire.scalar_group();
  job.world_size = wire.world_size();
  job.preset = wire.preset();
  for (const v1::RoutingRule& rule : wire.routing_rules()) {
    job.routing_rules.push_back(RuleFromProto(rule));
  }
  for (const v1::NormGroup& group : wire.norm_groups()) {
    kaon::NormGroup& added = job.norm_groups.emplace_back();
    added.name = group.name();
    if (group.has_max_grad_norm()) added.max_grad_norm = group.max_grad_norm();
  }
  if (wire.has_max_grad_norm()) job.max_grad_norm = wire.max_grad_norm();
  if (wire.clip_scope() != 0) job.clip_scope = static_cast<kaon::ClipScope>(wire.clip_scope());
  if (wire.has_clip_floor()) job.clip_floor = wire.clip_floor();
  if (wire.has_grad_norm_skip_threshold())
    job.grad_norm_skip_threshold = wire.grad_norm_skip_threshold();
  if (wire.report_norms() != 0)
    job.report_norms = static_cast<kaon::ReportNorms>(wire.report_norms());
  if (wire.has_loss_scaler()) job.loss_scaler = ScalerFromProto(wire.loss_scaler());
  if (wire.worker_loss() != 0) job.worker_loss = static_cast<kaon::WorkerLoss>(wire.worker_loss());
  if (wire.has_worker_loss_seconds()) job.worker_loss_seconds = wire.worker_loss_seconds();
  if (wire.has_step_seconds()) job.step_seconds = wire.step_seconds();
  return job;
}

kaon::JobDescription FromProto(const v1::JobDescription& description) {
  kaon::JobDescription out;
  out.definition = FromProto(description.definition());
  out.routes = RoutesFromProto(description);
  out.timeline = description.timeline();
  out.applied_step = description.applied_step();
  out.weights_loaded = description.weights_loaded();
  out.shard_addresses.assign(description.shard_addresses().begin(),
                             description.shard_addresses().end());
  for (const v1::GroupSetting& setting : description.changed()) {
    out.changed.push_back({setting.group(), setting.field(), setting.value(), setting.position()});
  }
  out.config_revision = description.config_revision();
  return out;
}

}  // namespace kaon::client
