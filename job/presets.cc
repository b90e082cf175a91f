#include "job/presets.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

constexpr char kMatrices[] = "matrices";
constexpr char kScalars[] = "scalars";

// No preset sets ns_steps: the default follows the coefficients, which the request may change. No
// preset sets norm_mode: the scale-invariant normalisation is right for all ([N5]).

v1::ParameterGroup& AddMatrices(v1::JobDefinition& job, double lr, double weight_decay) {
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name(kMatrices);
  group.set_rule(v1::RULE_MUON);
  group.set_lr(lr);
  group.set_weight_decay(weight_decay);
  job.set_matrix_group(kMatrices);
  return group;
}

v1::ParameterGroup& AddScalars(v1::JobDefinition& job, double lr, double weight_decay) {
  v1::ParameterGroup& group = *job.add_groups();
  group.set_name(kScalars);
  group.set_rule(v1::RULE_ADAMW);
  group.set_lr(lr);
  group.set_weight_decay(weight_decay);
  job.set_scalar_group(kScalars);
  return group;
}

void SetBetas(v1::ParameterGroup& group, double beta1, double beta2) {
  group.mutable_adamw()->set_beta1(beta1);
  group.mutable_adamw()->set_beta2(beta2);
}

// A matrix's update has the size of AdamW's (match_rms_adamw), so one learning rate and one decay
// serve both groups. The values are common ones for AdamW, and so is the norm limit ([C5]).
v1::JobDefinition Default() {
  v1::JobDefinition job;
  AddMatrices(job, 1e-3, 0.1);
  AddScalars(job, 1e-3, 0.1);
  job.set_max_grad_norm(1);
  return job;
}

// KellerJordan/Muon: MuonWithAuxAdam with the learning rates of its documentation. It does not
// clip. A parameter without a gradient is stepped with zeros ([T7]).
v1::JobDefinition Keller() {
  v1::JobDefinition job;
  v1::ParameterGroup& matrices = AddMatrices(job, 0.02, 0);
  v1::MuonOptions& muon = *matrices.mutable_muon();
  muon.set_momentum(0.95);
  muon.set_momentum_form(v1::MOMENTUM_FORM_EMA);
  muon.set_nesterov(true);
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_JORDAN);
  muon.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_BFLOAT16);
  muon.set_scale(v1::UPDATE_SCALE_ORIGINAL);
  matrices.set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  v1::ParameterGroup& scalars = AddScalars(job, 3e-4, 0);
  SetBetas(scalars, 0.9, 0.95);
  scalars.mutable_adamw()->set_eps(1e-10);
  scalars.set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  job.set_max_grad_norm(0);
  return job;
}

// Moonlight: one optimizer for both kinds of parameters, as in its example trainer. It does not
// clip.
v1::JobDefinition Moonlight() {
  v1::JobDefinition job;
  v1::MuonOptions& muon = *AddMatrices(job, 1e-3, 0.1).mutable_muon();
  muon.set_momentum(0.95);
  muon.set_momentum_form(v1::MOMENTUM_FORM_SUM);
  muon.set_nesterov(true);
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_JORDAN);
  muon.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_BFLOAT16);
  muon.set_scale(v1::UPDATE_SCALE_MATCH_RMS_ADAMW);
  v1::ParameterGroup& scalars = AddScalars(job, 1e-3, 0.1);
  SetBetas(scalars, 0.9, 0.95);
  scalars.mutable_adamw()->set_eps(1e-8);
  scalars.mutable_adamw()->set_eps_mode(v1::ADAM_EPS_MODE_UNCORRECTED);
  job.set_max_grad_norm(0);
  return job;
}

// Adds a rule without decay, which may match nothing. Its priority is below every rule of the
// request.
v1::RoutingRule& AddNoDecay(v1::JobDefinition& job, const char* name) {
  v1::RoutingRule& rule = *job.add_routing_rules();
  rule.set_name(name);
  rule.set_priority(std::numeric_limits<int32_t>::min());
  rule.set_weight_decay_multiplier(0);
  rule.set_may_match_none(true);
  return rule;
}

// Megatron-LM's command line: momentum 0.9 without Nesterov, sqrt(max(out, in)) with extra factor
// 1, clip 1, decay 0.01. Adam's betas are 0.9 and 0.999; vectors and biases have no decay ([W1]).
// Megatron-LM has no default learning rate: 3e-4 is that of Emerging-Optimizers, whose Muon it
// runs.
v1::JobDefinition Megatron() {
  v1::JobDefinition job;
  v1::MuonOptions& muon = *AddMatrices(job, 3e-4, 0.01).mutable_muon();
  muon.set_momentum(0.9);
  muon.set_momentum_form(v1::MOMENTUM_FORM_EMA);
  muon.set_nesterov(false);
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_YOU);
  muon.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_BFLOAT16);
  muon.set_scale(v1::UPDATE_SCALE_MAX_DIM);
  muon.set_scale_extra(1);
  v1::ParameterGroup& scalars = AddScalars(job, 3e-4, 0.01);
  SetBetas(scalars, 0.9, 0.999);
  scalars.mutable_adamw()->set_eps(1e-8);
  job.set_max_grad_norm(1);
  AddNoDecay(job, "megatron-vectors").set_max_ndim(1);
  AddNoDecay(job, "megatron-biases").set_name_glob("*.bias");
  return job;
}

// microsoft/dion's Muon: one learning rate and one decay for both kinds of parameters, as in its
// constructor. It does not clip.
v1::JobDefinition Dion() {
  v1::JobDefinition job;
  v1::MuonOptions& muon = *AddMatrices(job, 0.01, 0.01).mutable_muon();
  muon.set_momentum(0.95);
  muon.set_momentum_form(v1::MOMENTUM_FORM_SUM);
  muon.set_nesterov(false);
  muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS_5_S102);
  muon.set_ns_dtype(v1::NEWTON_SCHULZ_DTYPE_BFLOAT16);
  muon.set_scale(v1::UPDATE_SCALE_UNIT_RMS_NORM);
  v1::ParameterGroup& scalars = AddScalars(job, 0.01, 0.01);
  SetBetas(scalars, 0.9, 0.95);
  scalars.mutable_adamw()->set_eps(1e-8);
  scalars.mutable_adamw()->set_eps_mode(v1::ADAM_EPS_MODE_OUTSIDE);
  job.set_max_grad_norm(0);
  return job;
}

// torch.optim.AdamW for all parameters, with a common norm limit ([C5]).
v1::JobDefinition AdamW() {
  v1::JobDefinition job;
  v1::ParameterGroup& scalars = AddScalars(job, 1e-3, 0.01);
  SetBetas(scalars, 0.9, 0.999);
  scalars.mutable_adamw()->set_eps(1e-8);
  job.set_max_grad_norm(1);
  return job;
}

struct Preset {
  const char* name;
  v1::JobDefinition (*values)();
};

constexpr Preset kPresets[] = {{"default", Default},   {"keller", Keller}, {"moonlight", Moonlight},
                               {"megatron", Megatron}, {"dion", Dion},     {"adamw", AdamW}};

// Fills unset fields of the request's groups by rule, then adds the preset's own groups.
void CompleteGroups(const v1::JobDefinition& preset, v1::JobDefinition& job) {
  for (v1::ParameterGroup& group : *job.mutable_groups()) {
    for (const v1::ParameterGroup& values : preset.groups()) {
      if (values.rule() != group.rule()) continue;
      v1::ParameterGroup merged = values;
      merged.MergeFrom(group);  // `group` overwrites with every field it sets.
      group = std::move(merged);
    }
  }
  for (const v1::ParameterGroup& values : preset.groups()) {
    if (GroupIndex(job, values.name()) < 0) *job.add_groups() = values;
  }
}

void AddRules(const v1::JobDefinition& preset, v1::JobDefinition& job) {
  for (const v1::RoutingRule& rule : preset.routing_rules()) {
    bool there = false;
    for (const v1::RoutingRule& own : job.routing_rules()) there |= own.name() == rule.name();
    if (!there) *job.add_routing_rules() = rule;
  }
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::string PresetOf(const v1::JobDefinition& requested) {
  if (requested.preset().empty() && requested.groups().empty()) return "default";
  return requested.preset();
}

absl::StatusOr<v1::JobDefinition> WithPreset(const v1::JobDefinition& requested) {
  v1::JobDefinition job = requested;
  const std::string name = PresetOf(requested);
  if (name.empty()) return job;
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    const v1::JobDefinition values = preset.values();
    CompleteGroups(values, job);
    AddRules(values, job);
    if (job.matrix_group().empty()) job.set_matrix_group(values.matrix_group());
    if (job.scalar_group().empty()) job.set_scalar_group(values.scalar_group());
    if (!job.has_max_grad_norm()) job.set_max_grad_norm(values.max_grad_norm());
    return job;
  }
  return absl::InvalidArgumentError(absl::StrCat("preset is \"", proto::Excerpt(name),
                                                 "\", must be one of ",
                                                 absl::StrJoin(PresetNames(), ", ")));
}

}  // namespace kaon::job
