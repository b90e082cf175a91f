#include "client/wire/group_conversion.h"

namespace kaon::client {
namespace {

// Omits options that are all unset: validation rejects options of another rule.
template <typename Wire>
void SetUnlessEmpty(const Wire& options, Wire* (v1::ParameterGroup::*mutable_options)(),
                    v1::ParameterGroup& group) {
  if (options.ByteSizeLong() > 0) *(group.*mutable_options)() = options;
}

v1::NewtonSchulzOptions ToProto(const kaon::NewtonSchulzOptions& options) {
  v1::NewtonSchulzOptions wire;
  for (const kaon::NewtonSchulzTriple& triple : options.custom) {
    v1::NewtonSchulzTriple& added = *wire.add_custom();
    added.set_a(triple.a);
    added.set_b(triple.b);
    added.set_c2(triple.c2);
  }
  if (options.custom_repeat)
    wire.set_custom_repeat(static_cast<v1::NewtonSchulzRepeat>(*options.custom_repeat));
  if (options.norm_mode) wire.set_norm_mode(static_cast<v1::NormMode>(*options.norm_mode));
  if (options.norm_eps) wire.set_norm_eps(*options.norm_eps);
  if (options.form) wire.set_form(static_cast<v1::NewtonSchulzForm>(*options.form));
  for (uint32_t at : options.gram_restarts) wire.add_gram_restarts(at);
  return wire;
}

v1::MuonOptions ToProto(const kaon::MuonOptions& options) {
  v1::MuonOptions wire;
  if (options.momentum) wire.set_momentum(*options.momentum);
  if (options.nesterov) wire.set_nesterov(*options.nesterov);
  if (options.ns_coefficients)
    wire.set_ns_coefficients(static_cast<v1::NewtonSchulzCoefficients>(*options.ns_coefficients));
  if (options.ns_steps) wire.set_ns_steps(*options.ns_steps);
  if (options.scale) wire.set_scale(static_cast<v1::UpdateScale>(*options.scale));
  if (options.ns_dtype) wire.set_ns_dtype(static_cast<v1::NewtonSchulzDType>(*options.ns_dtype));
  if (options.momentum_form)
    wire.set_momentum_form(static_cast<v1::MomentumForm>(*options.momentum_form));
  if (options.scale_extra) wire.set_scale_extra(*options.scale_extra);
  const v1::NewtonSchulzOptions newton_schulz = ToProto(options.newton_schulz);
  if (newton_schulz.ByteSizeLong() > 0) *wire.mutable_newton_schulz() = newton_schulz;
  return wire;
}

v1::AdamWOptions ToProto(const kaon::AdamWOptions& options) {
  v1::AdamWOptions wire;
  if (options.beta1) wire.set_beta1(*options.beta1);
  if (options.beta2) wire.set_beta2(*options.beta2);
  if (options.eps) wire.set_eps(*options.eps);
  if (options.eps_mode) wire.set_eps_mode(static_cast<v1::AdamEpsMode>(*options.eps_mode));
  if (options.amsgrad) wire.set_amsgrad(*options.amsgrad);
  if (options.bias_correction) wire.set_bias_correction(*options.bias_correction);
  if (options.exp_avg_sq_dtype)
    wire.set_exp_avg_sq_dtype(static_cast<v1::StateDType>(*options.exp_avg_sq_dtype));
  return wire;
}

v1::SgdOptions ToProto(const kaon::SgdOptions& options) {
  v1::SgdOptions wire;
  if (options.momentum) wire.set_momentum(*options.momentum);
  if (options.dampening) wire.set_dampening(*options.dampening);
  if (options.nesterov) wire.set_nesterov(*options.nesterov);
  return wire;
}

v1::LionOptions ToProto(const kaon::LionOptions& options) {
  v1::LionOptions wire;
  if (options.beta1) wire.set_beta1(*options.beta1);
  if (options.beta2) wire.set_beta2(*options.beta2);
  return wire;
}

kaon::NewtonSchulzOptions FromProto(const v1::NewtonSchulzOptions& wire) {
  kaon::NewtonSchulzOptions options;
  for (const v1::NewtonSchulzTriple& triple : wire.custom()) {
    options.custom.push_back({triple.a(), triple.b(), triple.c2()});
  }
  if (wire.custom_repeat() != 0)
    options.custom_repeat = static_cast<kaon::NewtonSchulzRepeat>(wire.custom_repeat());
  if (wire.norm_mode() != 0) options.norm_mode = static_cast<kaon::NormMode>(wire.norm_mode());
  if (wire.has_norm_eps()) options.norm_eps = wire.norm_eps();
  if (wire.form() != 0) options.form = static_cast<kaon::NewtonSchulzForm>(wire.form());
  options.gram_restarts.assign(wire.gram_restarts().begin(), wire.gram_restarts().end());
  return options;
}

kaon::MuonOptions FromProto(const v1::MuonOptions& wire) {
  kaon::MuonOptions options;
  if (wire.has_momentum()) options.momentum = wire.momentum();
  if (wire.has_nesterov()) options.nesterov = wire.nesterov();
  if (wire.ns_coefficients() != 0)
    options.ns_coefficients = static_cast<kaon::NewtonSchulzCoefficients>(wire.ns_coefficients());
  if (wire.has_ns_steps()) options.ns_steps = wire.ns_steps();
  if (wire.scale() != 0) options.scale = static_cast<kaon::UpdateScale>(wire.scale());
  if (wire.ns_dtype() != 0)
    options.ns_dtype = static_cast<kaon::NewtonSchulzDType>(wire.ns_dtype());
  if (wire.momentum_form() != 0)
    options.momentum_form = static_cast<kaon::MomentumForm>(wire.momentum_form());
  if (wire.has_scale_extra()) options.scale_extra = wire.scale_extra();
  options.newton_schulz = FromProto(wire.newton_schulz());
  return options;
}

kaon::AdamWOptions FromProto(const v1::AdamWOptions& wire) {
  kaon::AdamWOptions options;
  if (wire.has_beta1()) options.beta1 = wire.beta1();
  if (wire.has_beta2()) options.beta2 = wire.beta2();
  if (wire.has_eps()) options.eps = wire.eps();
  if (wire.eps_mode() != 0) options.eps_mode = static_cast<kaon::AdamEpsMode>(wire.eps_mode());
  if (wire.has_amsgrad()) options.amsgrad = wire.amsgrad();
  if (wire.has_bias_correction()) options.bias_correction = wire.bias_correction();
  if (wire.exp_avg_sq_dtype() != 0)
    options.exp_avg_sq_dtype = static_cast<kaon::StateDType>(wire.exp_avg_sq_dtype());
  return options;
}

kaon::SgdOptions FromProto(const v1::SgdOptions& wire) {
  kaon::SgdOptions options;
  if (wire.has_momentum()) options.momentum = wire.momentum();
  if (wire.has_dampening()) options.dampening = wire.dampening();
  if (wire.has_nesterov()) options.nesterov = wire.nesterov();
  return options;
}

kaon::LionOptions FromProto(const v1::LionOptions& wire) {
  kaon::LionOptions options;
  if (wire.has_beta1()) options.beta1 = wire.beta1();
  if (wire.has_beta2()) options.beta2 = wire.beta2();
  return options;
}

}  // namespace

v1::ParameterGroup GroupToProto(const kaon::ParameterGroup& group) {
  v1::ParameterGroup wire;
  wire.set_name(group.name);
  if (group.rule) wire.set_rule(static_cast<v1::Rule>(*group.rule));
  if (group.lr) wire.set_lr(*group.lr);
  if (group.weight_decay) wire.set_weight_decay(*group.weight_decay);
  if (group.clip_policy) wire.set_clip_policy(static_cast<v1::ClipPolicy>(*group.clip_policy));
  if (group.decay_mode) wire.set_decay_mode(static_cast<v1::DecayMode>(*group.decay_mode));
  if (group.momentum_dtype)
    wire.set_momentum_dtype(static_cast<v1::StateDType>(*group.momentum_dtype));
  if (group.missing_gradient)
    wire.set_missing_gradient(static_cast<v1::MissingGradient>(*group.missing_gradient));
  if (group.tier) wire.set_tier(static_cast<v1::Tier>(*group.tier));
  wire.set_norm_group(group.norm_group);
  SetUnlessEmpty(ToProto(group.muon), &v1::ParameterGroup::mutable_muon, wire);
  SetUnlessEmpty(ToProto(group.adamw), &v1::ParameterGroup::mutable_adamw, wire);
  SetUnlessEmpty(ToProto(group.sgd), &v1::ParameterGroup::mutable_sgd, wire);
  SetUnlessEmpty(ToProto(group.lion), &v1::ParameterGroup::mutable_lion, wire);
  if (group.schedule) {
    v1::Schedule& schedule = *wire.mutable_schedule();
    schedule.set_kind(static_cast<v1::ScheduleKind>(group.schedule->kind));
    schedule.set_warmup_steps(group.schedule->warmup_steps);
    schedule.set_total_steps(group.schedule->total_steps);
    schedule.set_decay_steps(group.schedule->decay_steps);
    schedule.set_final_factor(group.schedule->final_factor);
  }
  return wire;
}

kaon::ParameterGroup GroupFromProto(const v1::ParameterGroup& wire) {
  kaon::ParameterGroup group;
  group.name = wire.name();
  if (wire.rule() != 0) group.rule = static_cast<kaon::Rule>(wire.rule());
  if (wire.has_lr()) group.lr = wire.lr();
  if (wire.has_weight_decay()) group.weight_decay = wire.weight_decay();
  if (wire.clip_policy() != 0)
    group.clip_policy = static_cast<kaon::ClipPolicy>(wire.clip_policy());
  if (wire.decay_mode() != 0) group.decay_mode = static_cast<kaon::DecayMode>(wire.decay_mode());
  if (wire.momentum_dtype() != 0)
    group.momentum_dtype = static_cast<kaon::StateDType>(wire.momentum_dtype());
  if (wire.missing_gradient() != 0)
    group.missing_gradient = static_cast<kaon::MissingGradient>(wire.missing_gradient());
  if (wire.tier() != 0) group.tier = static_cast<kaon::Tier>(wire.tier());
  group.norm_group = wire.norm_group();
  group.muon = FromProto(wire.muon());
  group.adamw = FromProto(wire.adamw());
  group.sgd = FromProto(wire.sgd());
  group.lion = FromProto(wire.lion());
  if (wire.has_schedule()) {
    const v1::Schedule& schedule = wire.schedule();
    group.schedule =
        kaon::Schedule{static_cast<kaon::ScheduleKind>(schedule.kind()), schedule.warmup_steps(),
                       schedule.total_steps(), schedule.decay_steps(), schedule.final_factor()};
  }
  return group;
}

}  // namespace kaon::client
