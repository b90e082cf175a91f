#include "job/effective_job.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/presets.h"
#include "job/rule_config.h"
#include "job/workers.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/orthogonalize/newton_schulz_validation.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

void CompleteNewtonSchulz(uint32_t ns_steps, v1::NewtonSchulzOptions& options) {
  if (options.custom_size() > 0 &&
      options.custom_repeat() == v1::NEWTON_SCHULZ_REPEAT_UNSPECIFIED) {
    options.set_custom_repeat(v1::NEWTON_SCHULZ_REPEAT_LAST);
  }
  if (options.norm_mode() == v1::NORM_MODE_UNSPECIFIED) {
    options.set_norm_mode(v1::NORM_MODE_SCALE_INVARIANT);
  }
  if (options.norm_mode() != v1::NORM_MODE_SCALE_INVARIANT && !options.has_norm_eps()) {
    options.set_norm_eps(1e-7);
  }
  if (options.form() == v1::NEWTON_SCHULZ_FORM_UNSPECIFIED) {
    options.set_form(v1::NEWTON_SCHULZ_FORM_STANDARD);
  }
  if (options.form() == v1::NEWTON_SCHULZ_FORM_GRAM && options.gram_restarts().empty()) {
    for (const uint32_t at : DefaultGramRestarts(ns_steps)) options.add_gram_restarts(at);
  }
}

uint32_t DefaultSteps(v1::NewtonSchulzCoefficients set, const v1::NewtonSchulzOptions& options) {
  if (set == v1::NEWTON_SCHULZ_COEFFICIENTS_DEEPSEEK_V4) return 10;
  if (set == v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM &&
      options.custom_repeat() == v1::NEWTON_SCHULZ_REPEAT_FIXED) {
    return static_cast<uint32_t>(options.custom_size());
  }
  return 5;
}

// Returns the dtype of a group that names no ns_dtype ([N6]): bf16, or fp32 if the other options
// are not valid with bf16. The coefficient set `cans` leaves no room for bf16's rounding.
v1::NewtonSchulzDType DefaultDType(v1::MuonOptions muon) {
  for (const auto dtype : {v1::NEWTON_SCHULZ_DTYPE_BFLOAT16, v1::NEWTON_SCHULZ_DTYPE_FLOAT32}) {
    muon.set_ns_dtype(dtype);
    if (kernels::ValidateNewtonSchulz(NewtonSchulzConfigOf(muon)).ok()) return dtype;
  }
  // Neither dtype is valid: ValidateJob rejects the group for another option.
  return v1::NEWTON_SCHULZ_DTYPE_BFLOAT16;
}

void CompleteMuon(v1::MuonOptions& muon) {
  if (!muon.has_momentum()) muon.set_momentum(0.95);
  if (!muon.has_nesterov()) muon.set_nesterov(true);
  if (muon.ns_coefficients() == v1::NEWTON_SCHULZ_COEFFICIENTS_UNSPECIFIED) {
    muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_JORDAN);
  }
  if (!muon.has_ns_steps()) {
    muon.set_ns_steps(DefaultSteps(muon.ns_coefficients(), muon.newton_schulz()));
  }
  if (muon.scale() == v1::UPDATE_SCALE_UNSPECIFIED) {
    muon.set_scale(v1::UPDATE_SCALE_MATCH_RMS_ADAMW);
  }
  if (muon.momentum_form() == v1::MOMENTUM_FORM_UNSPECIFIED) {
    muon.set_momentum_form(v1::MOMENTUM_FORM_EMA);
  }
  if (!muon.has_scale_extra()) muon.set_scale_extra(1);
  CompleteNewtonSchulz(muon.ns_steps(), *muon.mutable_newton_schulz());
  if (muon.ns_dtype() == v1::NEWTON_SCHULZ_DTYPE_UNSPECIFIED) {
    muon.set_ns_dtype(DefaultDType(muon));
  }
}

void CompleteAdamW(v1::AdamWOptions& adamw) {
  if (!adamw.has_beta1()) adamw.set_beta1(0.9);
  if (!adamw.has_beta2()) adamw.set_beta2(0.95);
  if (!adamw.has_eps()) adamw.set_eps(1e-8);
  if (adamw.eps_mode() == v1::ADAM_EPS_MODE_UNSPECIFIED) {
    adamw.set_eps_mode(v1::ADAM_EPS_MODE_OUTSIDE);
  }
  if (!adamw.has_amsgrad()) adamw.set_amsgrad(false);
  if (!adamw.has_bias_correction()) adamw.set_bias_correction(true);
  // Definitions that are older than the field leave it unset.
  if (adamw.exp_avg_sq_dtype() == v1::STATE_DTYPE_FLOAT32) adamw.clear_exp_avg_sq_dtype();
}

void CompleteSgd(v1::SgdOptions& sgd) {
  if (!sgd.has_momentum()) sgd.set_momentum(0);
  if (!sgd.has_dampening()) sgd.set_dampening(0);
  if (!sgd.has_nesterov()) sgd.set_nesterov(false);
}

void CompleteLion(v1::LionOptions& lion) {
  if (!lion.has_beta1()) lion.set_beta1(0.95);
  if (!lion.has_beta2()) lion.set_beta2(0.98);
}

// Keeps options of another rule as they are; ValidateJob rejects them.
void CompleteGroup(v1::ParameterGroup& group) {
  switch (group.rule()) {
    case v1::RULE_MUON:
      CompleteMuon(*group.mutable_muon());
      break;
    case v1::RULE_ADAMW:
      CompleteAdamW(*group.mutable_adamw());
      break;
    case v1::RULE_SGD:
      CompleteSgd(*group.mutable_sgd());
      break;
    case v1::RULE_LION:
      CompleteLion(*group.mutable_lion());
      break;
    default:
      break;
  }
  if (!group.has_weight_decay()) group.set_weight_decay(0);
  if (group.norm_group().empty()) group.set_norm_group("main");
  if (group.decay_mode() == v1::DECAY_MODE_UNSPECIFIED) {
    group.set_decay_mode(group.rule() == v1::RULE_SGD ? v1::DECAY_MODE_L2
                                                      : v1::DECAY_MODE_DECOUPLED);
  }
  if (group.momentum_dtype() == v1::STATE_DTYPE_UNSPECIFIED) {
    group.set_momentum_dtype(v1::STATE_DTYPE_FLOAT32);
  }
  if (group.missing_gradient() == v1::MISSING_GRADIENT_UNSPECIFIED) {
    group.set_missing_gradient(v1::MISSING_GRADIENT_SKIP);
  }
  v1::Schedule& schedule = *group.mutable_schedule();
  if (schedule.kind() == v1::SCHEDULE_KIND_UNSPECIFIED) {
    schedule.set_kind(v1::SCHEDULE_KIND_CONSTANT);
  }
  if (group.clip_policy() == v1::CLIP_POLICY_UNSPECIFIED) {
    // IsClipExempt needs a complete group.
    group.set_clip_policy(IsClipExempt(group) ? v1::CLIP_POLICY_EXEMPT : v1::CLIP_POLICY_CLIP);
  }
}

// Moves the limit of a declared `main` to the job's max_grad_norm: both are the limit of every
// parameter that names no norm group. Keeps a `main` that is declared twice; ValidateJob rejects
// it.
void CompleteNormGroups(v1::JobDefinition& job) {
  int main = -1;
  int num_main = 0;
  for (int i = 0; i < job.norm_groups_size(); ++i) {
    if (job.norm_groups(i).name() != kMainNormGroup) continue;
    main = i;
    ++num_main;
  }
  if (num_main == 1) {
    const v1::NormGroup& group = job.norm_groups(main);
    if (group.has_max_grad_norm()) job.set_max_grad_norm(group.max_grad_norm());
    job.mutable_norm_groups()->DeleteSubrange(main, 1);
  }
  for (v1::NormGroup& group : *job.mutable_norm_groups()) {
    if (!group.has_max_grad_norm()) group.set_max_grad_norm(job.max_grad_norm());
  }
}

// Rejects two different limits, because one would silently replace the other.
absl::Status CheckOneLimitOfMain(const v1::JobDefinition& job) {
  if (!job.has_max_grad_norm()) return absl::OkStatus();
  for (const v1::NormGroup& group : job.norm_groups()) {
    if (group.name() != kMainNormGroup || !group.has_max_grad_norm()) continue;
    if (group.max_grad_norm() == job.max_grad_norm()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("norm group main: max_grad_norm is ", group.max_grad_norm(),
                     ", the job's max_grad_norm is ", job.max_grad_norm(),
                     ", must be equal or only one of them set"));
  }
  return absl::OkStatus();
}

void CompleteLossScaler(v1::LossScaler& scaler) {
  if (!scaler.has_dynamic()) scaler.set_dynamic(false);
  if (!scaler.has_initial_scale()) scaler.set_initial_scale(scaler.dynamic() ? 65536 : 1);
  if (!scaler.dynamic()) return;
  if (!scaler.has_min_scale()) scaler.set_min_scale(1);
  if (!scaler.has_growth_interval()) scaler.set_growth_interval(1000);
  if (!scaler.has_hysteresis()) scaler.set_hysteresis(2);
}

}  // namespace

v1::ParameterGroup EffectiveGroup(v1::ParameterGroup requested) {
  CompleteGroup(requested);
  return requested;
}

std::vector<uint32_t> DefaultGramRestarts(uint32_t ns_steps) {
  std::vector<uint32_t> restarts;
  const uint32_t end = std::min<uint32_t>(ns_steps, kernels::kMaxNewtonSchulzSteps);
  // One restart is enough for 5 steps.
  const bool one = ns_steps <= kernels::kMaxStepsWithOneRestart;
  for (uint32_t at = 2; at < end && (at == 2 || !one); at += 2) restarts.push_back(at);
  return restarts;
}

absl::StatusOr<v1::JobDefinition> Effective(const v1::JobDefinition& requested) {
  KAON_RETURN_IF_ERROR(CheckOneLimitOfMain(requested));
  KAON_ASSIGN_OR_RETURN(v1::JobDefinition job, WithPreset(requested));
  // The preset's values are written out: a job that sets them itself is the same job.
  job.clear_preset();
  for (v1::ParameterGroup& group : *job.mutable_groups()) CompleteGroup(group);
  for (v1::ParameterSpec& parameter : *job.mutable_parameters()) {
    if (parameter.layout().ByteSizeLong() == 0) parameter.clear_layout();
  }
  if (!job.has_max_grad_norm()) job.set_max_grad_norm(0);
  CompleteNormGroups(job);
  if (job.clip_scope() == v1::CLIP_SCOPE_UNSPECIFIED) job.set_clip_scope(v1::CLIP_SCOPE_LIVE);
  if (!job.has_clip_floor()) job.set_clip_floor(0);
  if (job.report_norms() == v1::REPORT_NORMS_UNSPECIFIED) {
    job.set_report_norms(v1::REPORT_NORMS_ON);
  }
  CompleteLossScaler(*job.mutable_loss_scaler());
  CompleteWorkers(job);
  return job;
}

}  // namespace kaon::job
