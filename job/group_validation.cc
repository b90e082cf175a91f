#include "job/group_validation.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/field_checks.h"
#include "job/names.h"
#include "job/rule_config.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

constexpr uint64_t kMaxSteps = uint64_t{1} << 40;
constexpr uint32_t kMaxIterations = 99;
// [N7]: with more iterations one restart is not enough in half precision.
constexpr uint32_t kMaxIterationsOfOneRestart = 5;

// An option that maps to nothing is an error, never ignored (numerics.md edge case 51).
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

absl::Status CheckCustom(const std::string& group, const v1::MuonOptions& muon) {
  const std::string at = absl::StrCat(group, "muon.newton_schulz.");
  const v1::NewtonSchulzOptions& options = muon.newton_schulz();
  const bool custom = muon.ns_coefficients() == v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM;
  constexpr absl::string_view kNeeds = "ns_coefficients custom";
  if (!custom) {
    KAON_RETURN_IF_ERROR(CheckUnset(absl::StrCat(at, "custom"), options.custom_size() > 0, kNeeds));
    return CheckUnset(absl::StrCat(at, "custom_repeat"), options.custom_repeat() != 0, kNeeds);
  }
  KAON_RETURN_IF_ERROR(CheckCount(absl::StrCat("number of entries of ", at, "custom"),
                                  options.custom_size(), 1, kMaxIterations));
  for (int i = 0; i < options.custom_size(); ++i) {
    const v1::NewtonSchulzTriple& triple = options.custom(i);
    const std::string entry = absl::StrCat(at, "custom[", i, "].");
    // a <= 0 goes uphill (edge case 50).
    KAON_RETURN_IF_ERROR(CheckRange(absl::StrCat(entry, "a"), triple.a(), kMinFloat, kMaxFloat));
    KAON_RETURN_IF_ERROR(CheckRange(absl::StrCat(entry, "b"), triple.b(), -kMaxFloat, kMaxFloat));
    KAON_RETURN_IF_ERROR(CheckRange(absl::StrCat(entry, "c2"), triple.c2(), -kMaxFloat, kMaxFloat));
  }
  if (options.custom_repeat() == v1::NEWTON_SCHULZ_REPEAT_FIXED) {
    return CheckCount(absl::StrCat(group, "muon.ns_steps"), muon.ns_steps(), options.custom_size(),
                      options.custom_size());
  }
  return absl::OkStatus();
}

absl::Status CheckRestarts(const std::string& at, const v1::MuonOptions& muon) {
  const v1::NewtonSchulzOptions& options = muon.newton_schulz();
  const std::string field = absl::StrCat(at, "gram_restarts");
  if (options.form() != v1::NEWTON_SCHULZ_FORM_GRAM) {
    return CheckUnset(field, options.gram_restarts_size() > 0, "form gram");
  }
  uint32_t least = 1;
  for (int i = 0; i < options.gram_restarts_size(); ++i) {
    // Ascending: each is above the one before.
    const std::string entry = absl::StrCat(field, "[", i, "]");
    KAON_RETURN_IF_ERROR(CheckCount(entry, options.gram_restarts(i), least, muon.ns_steps() - 1));
    least = options.gram_restarts(i) + 1;
  }
  if (muon.ns_steps() > kMaxIterationsOfOneRestart && options.gram_restarts_size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is [", absl::StrJoin(options.gram_restarts(), ", "),
                     "], must be at least 2 of them with ns_steps ", muon.ns_steps(), " > ",
                     kMaxIterationsOfOneRestart, " ([N7])"));
  }
  return absl::OkStatus();
}

absl::Status CheckMuon(const std::string& group, const v1::MuonOptions& muon) {
  const v1::NewtonSchulzOptions& options = muon.newton_schulz();
  KAON_RETURN_IF_ERROR(
      CheckCount(absl::StrCat(group, "muon.ns_steps"), muon.ns_steps(), 1, kMaxIterations));
  KAON_RETURN_IF_ERROR(CheckRange(absl::StrCat(group, "muon.scale_extra"), muon.scale_extra(),
                                  kMinFloat, kMaxFloat));
  const std::string at = absl::StrCat(group, "muon.newton_schulz.");
  KAON_RETURN_IF_ERROR(CheckCustom(group, muon));
  const std::string eps = absl::StrCat(at, "norm_eps");
  if (options.norm_mode() == v1::NORM_MODE_SCALE_INVARIANT) {
    KAON_RETURN_IF_ERROR(CheckUnset(eps, options.has_norm_eps(), "norm_mode add_eps or clamp_eps"));
  } else {
    KAON_RETURN_IF_ERROR(CheckRange(eps, options.norm_eps(), kMinFloat, kMaxFloat));
  }
  return CheckRestarts(at, muon);
}

}  // namespace

absl::Status ValidateGroup(const v1::ParameterGroup& group) {
  KAON_RETURN_IF_ERROR(CheckName("groups.name", group.name()));
  const std::string at = absl::StrCat("group ", group.name(), ": ");
  // First: options of another rule are not written out.
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
  if (group.rule() == v1::RULE_MUON) KAON_RETURN_IF_ERROR(CheckMuon(at, group.muon()));
  const std::vector<uint64_t> any_matrix = {1, 1};
  const absl::Status rule = kernels::ValidateRule(RuleConfigOf(group), any_matrix);
  if (!rule.ok()) return absl::InvalidArgumentError(absl::StrCat(at, rule.message()));
  return absl::OkStatus();
}

}  // namespace kaon::job
