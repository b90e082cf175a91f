#include "client/job_conversion.h"

namespace kaon::client {
namespace {

v1::ParameterGroup GroupToProto(const kaon::ParameterGroup& group) {
  v1::ParameterGroup out;
  out.set_name(group.name);
  out.set_rule(static_cast<v1::Rule>(group.rule));
  out.set_lr(group.lr);
  out.set_weight_decay(group.weight_decay);
  out.set_clip_policy(static_cast<v1::ClipPolicy>(group.clip_policy));
  if (group.rule == Rule::kMuon) {
    v1::MuonOptions& muon = *out.mutable_muon();
    muon.set_momentum(group.muon.momentum);
    muon.set_nesterov(group.muon.nesterov);
    muon.set_ns_coefficients(static_cast<v1::NewtonSchulzCoefficients>(group.muon.ns_coefficients));
    muon.set_ns_steps(group.muon.ns_steps);
    muon.set_scale(static_cast<v1::UpdateScale>(group.muon.scale));
    muon.set_ns_dtype(static_cast<v1::NewtonSchulzDType>(group.muon.ns_dtype));
  } else {
    v1::AdamWOptions& adamw = *out.mutable_adamw();
    adamw.set_beta1(group.adamw.beta1);
    adamw.set_beta2(group.adamw.beta2);
    adamw.set_eps(group.adamw.eps);
  }
  return out;
}

v1::ParameterSpec ParameterToProto(const kaon::ParameterSpec& parameter) {
  v1::ParameterSpec out;
  out.set_name(parameter.name);
  for (uint64_t dimension : parameter.shape) out.add_shape(dimension);
  out.set_dtype(static_cast<v1::DType>(parameter.dtype));
  out.set_group(parameter.group);
  out.set_transposed(parameter.transposed);
  out.set_is_embedding_or_output(parameter.is_embedding_or_output);
  out.set_frozen(parameter.frozen);
  return out;
}

kaon::ParameterGroup GroupFromProto(const v1::ParameterGroup& group) {
  kaon::ParameterGroup out;
  out.name = group.name();
  out.rule = static_cast<kaon::Rule>(group.rule());
  out.lr = group.lr();
  out.weight_decay = group.weight_decay();
  out.clip_policy = static_cast<kaon::ClipPolicy>(group.clip_policy());
  const v1::MuonOptions& muon = group.muon();
  if (muon.has_momentum()) out.muon.momentum = muon.momentum();
  if (muon.has_nesterov()) out.muon.nesterov = muon.nesterov();
  if (muon.has_ns_steps()) out.muon.ns_steps = muon.ns_steps();
  if (muon.ns_coefficients() != v1::NEWTON_SCHULZ_COEFFICIENTS_UNSPECIFIED) {
    out.muon.ns_coefficients = static_cast<kaon::NewtonSchulzCoefficients>(muon.ns_coefficients());
  }
  if (muon.scale() != v1::UPDATE_SCALE_UNSPECIFIED) {
    out.muon.scale = static_cast<kaon::UpdateScale>(muon.scale());
  }
  if (muon.ns_dtype() != v1::NEWTON_SCHULZ_DTYPE_UNSPECIFIED) {
    out.muon.ns_dtype = static_cast<kaon::NewtonSchulzDType>(muon.ns_dtype());
  }
  const v1::AdamWOptions& adamw = group.adamw();
  if (adamw.has_beta1()) out.adamw.beta1 = adamw.beta1();
  if (adamw.has_beta2()) out.adamw.beta2 = adamw.beta2();
  if (adamw.has_eps()) out.adamw.eps = adamw.eps();
  return out;
}

kaon::ParameterSpec ParameterFromProto(const v1::ParameterSpec& parameter) {
  kaon::ParameterSpec out;
  out.name = parameter.name();
  out.shape.assign(parameter.shape().begin(), parameter.shape().end());
  out.dtype = static_cast<kaon::DType>(parameter.dtype());
  out.group = parameter.group();
  out.transposed = parameter.transposed();
  out.is_embedding_or_output = parameter.is_embedding_or_output();
  out.frozen = parameter.frozen();
  return out;
}

}  // namespace

v1::JobDefinition ToProto(const kaon::JobDefinition& definition) {
  v1::JobDefinition out;
  out.set_name(definition.name);
  for (const kaon::ParameterSpec& parameter : definition.parameters) {
    *out.add_parameters() = ParameterToProto(parameter);
  }
  for (const kaon::ParameterGroup& group : definition.groups) {
    *out.add_groups() = GroupToProto(group);
  }
  out.set_matrix_group(definition.matrix_group);
  out.set_scalar_group(definition.scalar_group);
  out.set_max_grad_norm(definition.max_grad_norm);
  out.set_world_size(definition.world_size);
  return out;
}

kaon::JobDescription FromProto(const v1::JobDescription& description) {
  kaon::JobDescription out;
  const v1::JobDefinition& definition = description.definition();
  out.definition.name = definition.name();
  for (const v1::ParameterSpec& parameter : definition.parameters()) {
    out.definition.parameters.push_back(ParameterFromProto(parameter));
  }
  for (const v1::ParameterGroup& group : definition.groups()) {
    out.definition.groups.push_back(GroupFromProto(group));
  }
  out.definition.matrix_group = definition.matrix_group();
  out.definition.scalar_group = definition.scalar_group();
  out.definition.max_grad_norm = definition.max_grad_norm();
  out.definition.world_size = definition.world_size();
  out.routes.resize(definition.parameters_size());
  for (const v1::ParameterPlacement& placement : description.placement().parameters()) {
    if (placement.parameter_id() >= out.routes.size()) continue;
    out.routes[placement.parameter_id()] = {placement.group(), placement.route_reason(),
                                            placement.shard()};
  }
  out.timeline = description.timeline();
  out.applied_step = description.applied_step();
  out.weights_loaded = description.weights_loaded();
  out.shard_addresses.assign(description.shard_addresses().begin(),
                             description.shard_addresses().end());
  return out;
}

}  // namespace kaon::client
