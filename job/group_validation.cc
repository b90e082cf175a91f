#include "job/group_validation.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/field_checks.h"
#include "job/names.h"
#include "job/rule_config.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

constexpr uint64_t kMaxSteps = uint64_t{1} << 40;

// An option that has no effect is an error, never ignored (numerics.md edge case 51).
absl::Status CheckUnset(absl::string_view field, bool set, absl::string_view needs) {
  if (!set) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is set, must be unset: it needs ", needs));
}

absl::Status CheckOptionsAreOfTheRule(const std::string& at, const v1::ParameterGroup& group) {
  struct Options {
    v1::Rule rule;
    bool set;
  };
  const Options all[] = {{v1::RULE_MUON, group.has_muon()},
                         {v1::RULE_ADAMW, group.has_adamw()},
                         {v1::RULE_SGD, group.has_sgd()},
                         {v1::RULE_LION, group.has_lion()}};
  for (const Options& options : all) {
    if (!options.set || options.rule == group.rule()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(at, NameOf(options.rule), " is set, but the rule is ", NameOf(group.rule())));
  }
  return absl::OkStatus();
}

absl::Status CheckSchedule(const std::string& at, const v1::Schedule& schedule) {
  KAON_RETURN_IF_ERROR(
      CheckCount(absl::StrCat(at, "warmup_steps"), schedule.warmup_steps(), 0, kMaxSteps));
  const bool constant = schedule.kind() == v1::SCHEDULE_KIND_CONSTANT;
  KAON_RETURN_IF_ERROR(CheckCount(absl::StrCat(at, "total_steps"), schedule.total_steps(),
                                  constant ? 0 : schedule.warmup_steps() + 1,
                                  constant ? 0 : kMaxSteps));
  const bool decays = schedule.kind() == v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY;
  KAON_RETURN_IF_ERROR(CheckCount(absl::StrCat(at, "decay_steps"), schedule.decay_steps(),
                                  decays ? 1 : 0,
                                  decays ? schedule.total_steps() - schedule.warmup_steps() : 0));
  return CheckRange(absl::StrCat(at, "final_factor"), schedule.final_factor(), 0, constant ? 0 : 1);
}

absl::Status CheckMuon(const std::string& group, const v1::MuonOptions& muon) {
  const v1::NewtonSchulzOptions& options = muon.newton_schulz();
  KAON_RETURN_IF_ERROR(CheckCount(absl::StrCat(group, "muon.ns_steps"), muon.ns_steps(), 1,
                                  kernels::kMaxNewtonSchulzSteps));
  KAON_RETURN_IF_ERROR(CheckRange(absl::StrCat(group, "muon.scale_extra"), muon.scale_extra(),
                                  kMinFloat, kMaxFloat));
  const std::string at = absl::StrCat(group, "muon.newton_schulz.");
  // The check of the rule rejects custom triples of another set, whatever custom_repeat says.
  if (muon.ns_coefficients() != v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM &&
      options.custom_size() == 0) {
    KAON_RETURN_IF_ERROR(CheckUnset(absl::StrCat(at, "custom_repeat"), options.custom_repeat() != 0,
                                    "ns_coefficients custom"));
  }
  const std::string eps = absl::StrCat(at, "norm_eps");
  if (options.norm_mode() == v1::NORM_MODE_SCALE_INVARIANT) {
    KAON_RETURN_IF_ERROR(CheckUnset(eps, options.has_norm_eps(), "norm_mode add_eps or clamp_eps"));
  } else {
    KAON_RETURN_IF_ERROR(CheckRange(eps, options.norm_eps(), kMinFloat, kMaxFloat));
  }
  return absl::OkStatus();
}

// eps_mode says how eps combines with the bias correction ([A2], [A5]), so it needs one.
absl::Status CheckAdamW(const std::string& at, const v1::AdamWOptions& adamw) {
  if (adamw.exp_avg_sq_dtype() != v1::STATE_DTYPE_UNSPECIFIED &&
      adamw.exp_avg_sq_dtype() != v1::STATE_DTYPE_FLOAT32 &&
      adamw.exp_avg_sq_dtype() != v1::STATE_DTYPE_SQRT_UINT8) {
    return absl::InvalidArgumentError(absl::StrCat(at, "adamw.exp_avg_sq_dtype is ",
                                                   NameOf(adamw.exp_avg_sq_dtype()),
                                                   ", must be float32 or sqrt_uint8"));
  }
  return CheckUnset(absl::StrCat(at, "adamw.eps_mode ", NameOf(adamw.eps_mode())),
                    adamw.eps_mode() != v1::ADAM_EPS_MODE_OUTSIDE && !adamw.bias_correction(),
                    "bias_correction true");
}

// SGD without momentum has no buffer ([G1]).
absl::Status CheckSgd(const std::string& at, const v1::ParameterGroup& group) {
  if (group.sgd().momentum() != 0) return absl::OkStatus();
  constexpr absl::string_view kNeeds = "sgd.momentum above 0";
  KAON_RETURN_IF_ERROR(
      CheckUnset(absl::StrCat(at, "sgd.dampening"), group.sgd().dampening() != 0, kNeeds));
  return CheckUnset(absl::StrCat(at, "momentum_dtype ", NameOf(group.momentum_dtype())),
                    group.momentum_dtype() != v1::STATE_DTYPE_FLOAT32, kNeeds);
}

}  // namespace

absl::Status ValidateGroup(const v1::ParameterGroup& group) {
  KAON_RETURN_IF_ERROR(CheckName("groups.name", group.name()));
  const std::string at = absl::StrCat("group ", group.name(), ": ");
  // This check comes first: options of another rule are not written out.
  KAON_RETURN_IF_ERROR(CheckOptionsAreOfTheRule(at, group));
  KAON_RETURN_IF_ERROR(CheckEnums(at, group));
  if (!group.has_lr()) {
    return absl::InvalidArgumentError(absl::StrCat(at, "lr is unset, must be 0 .. ", kMaxFloat,
                                                   ": no preset has one for rule ",
                                                   NameOf(group.rule())));
  }
  KAON_RETURN_IF_ERROR(CheckFactor(absl::StrCat(at, "lr"), group.lr()));
  KAON_RETURN_IF_ERROR(CheckFactor(absl::StrCat(at, "weight_decay"), group.weight_decay()));
  KAON_RETURN_IF_ERROR(CheckSchedule(absl::StrCat(at, "schedule."), group.schedule()));
  if (group.momentum_dtype() == v1::STATE_DTYPE_SQRT_UINT8) {
    return absl::InvalidArgumentError(absl::StrCat(
        at, "momentum_dtype is sqrt_uint8, must be float32, bfloat16 or int8: it has a sign"));
  }
  if (group.rule() == v1::RULE_MUON) KAON_RETURN_IF_ERROR(CheckMuon(at, group.muon()));
  if (group.rule() == v1::RULE_ADAMW) KAON_RETURN_IF_ERROR(CheckAdamW(at, group.adamw()));
  if (group.rule() == v1::RULE_SGD) KAON_RETURN_IF_ERROR(CheckSgd(at, group));
  const std::vector<uint64_t> any_matrix = {1, 1};
  const absl::Status rule = kernels::ValidateRule(RuleConfigOf(group), any_matrix);
  if (!rule.ok()) return absl::InvalidArgumentError(absl::StrCat(at, rule.message()));
  return absl::OkStatus();
}

}  // namespace kaon::job
