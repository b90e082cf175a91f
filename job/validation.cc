#include "job/validation.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "job/routes.h"
#include "job/rule_config.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 40;
constexpr int kMaxParameters = 100000;
constexpr int kMaxGroups = 1000;
constexpr int kMaxDimensions = 8;
constexpr size_t kMaxParameterName = 512;
constexpr uint32_t kMaxWorldSize = 4096;
constexpr double kMaxFloat = std::numeric_limits<float>::max();
// Far below it a clip factor, max_grad_norm / norm, would become 0, which no shard applies.
constexpr double kMinGradNorm = 1e-30;

// Whether `name` has 1 .. max characters, each a lower-case letter, a digit, '-', or one of `more`.
bool IsName(absl::string_view name, size_t max, absl::string_view more) {
  if (name.empty() || name.size() > max) return false;
  for (char c : name) {
    const bool allowed = absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' ||
                         more.find(c) != absl::string_view::npos;
    if (!allowed) return false;
  }
  return true;
}

absl::Status CheckMaxGradNorm(double value) {
  if (value == 0 || (value >= kMinGradNorm && value <= kMaxFloat)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "max_grad_norm is ", value, ", must be 0 (off) or ", kMinGradNorm, " .. ", kMaxFloat));
}

// Enumerators above the newest known one come from a newer client: refused, never guessed.
absl::Status CheckEnum(absl::string_view field, int value, bool known) {
  if (known) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", which is not known"));
}

struct RuleOptions {
  v1::Rule rule;
  absl::string_view name;
  bool set;
};

// An option that maps to nothing is an error, never ignored (numerics.md edge case 51).
absl::Status RefuseOptionsOfOtherRules(const std::string& at, const v1::ParameterGroup& group) {
  const RuleOptions all[] = {{v1::RULE_MUON, "muon", group.has_muon()},
                             {v1::RULE_ADAMW, "adamw", group.has_adamw()},
                             {v1::RULE_SGD, "sgd", group.has_sgd()},
                             {v1::RULE_LION, "lion", group.has_lion()}};
  absl::string_view rule;
  for (const RuleOptions& options : all) {
    if (options.rule == group.rule()) rule = options.name;
  }
  for (const RuleOptions& options : all) {
    if (!options.set || options.rule == group.rule()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(at, options.name, " is set, but the rule is ", rule));
  }
  return absl::OkStatus();
}

absl::Status ValidateGroup(const v1::ParameterGroup& group) {
  if (!IsName(group.name(), 64, "_")) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups.name is \"", group.name(), "\", must match [a-z0-9_-]{1,64}"));
  }
  const std::string at = absl::StrCat("group ", group.name(), ": ");
  if (group.rule() == v1::RULE_UNSPECIFIED || !v1::Rule_IsValid(group.rule())) {
    return absl::InvalidArgumentError(
        absl::StrCat(at, "rule is ", static_cast<int>(group.rule()),
                     ", must be 1 (muon), 2 (adamw), 3 (sgd) or 4 (lion)"));
  }
  KAON_RETURN_IF_ERROR(ValidateLearningRate(absl::StrCat(at, "lr"), group.lr()));
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "clip_policy"), group.clip_policy(),
                                 v1::ClipPolicy_IsValid(group.clip_policy())));
  const v1::MuonOptions& muon = group.muon();
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "muon.ns_coefficients"), muon.ns_coefficients(),
                                 v1::NewtonSchulzCoefficients_IsValid(muon.ns_coefficients())));
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "muon.scale"), muon.scale(),
                                 v1::UpdateScale_IsValid(muon.scale())));
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "muon.ns_dtype"), muon.ns_dtype(),
                                 v1::NewtonSchulzDType_IsValid(muon.ns_dtype())));
  if (muon.has_ns_steps() && (muon.ns_steps() < 1 || muon.ns_steps() > 99)) {
    // Before ValidateRule: its field is an int.
    return absl::InvalidArgumentError(
        absl::StrCat(at, "muon.ns_steps is ", muon.ns_steps(), ", must be 1 .. 99"));
  }
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "adamw.eps_mode"), group.adamw().eps_mode(),
                                 v1::AdamEpsMode_IsValid(group.adamw().eps_mode())));
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "decay_mode"), group.decay_mode(),
                                 v1::DecayMode_IsValid(group.decay_mode())));
  KAON_RETURN_IF_ERROR(CheckEnum(absl::StrCat(at, "momentum_dtype"), group.momentum_dtype(),
                                 v1::StateDType_IsValid(group.momentum_dtype())));
  KAON_RETURN_IF_ERROR(RefuseOptionsOfOtherRules(at, group));
  const std::vector<uint64_t> any_matrix = {1, 1};
  const absl::Status rule = kernels::ValidateRule(RuleConfigOf(group), any_matrix);
  if (!rule.ok()) return absl::InvalidArgumentError(absl::StrCat(at, rule.message()));
  return absl::OkStatus();
}

absl::Status ValidateParameter(const v1::ParameterSpec& parameter, int id) {
  bool printable = !parameter.name().empty() && parameter.name().size() <= kMaxParameterName;
  for (char c : parameter.name()) printable = printable && absl::ascii_isprint(c);
  if (!printable) {
    return absl::InvalidArgumentError(absl::StrCat("parameters[", id, "].name has ",
                                                   parameter.name().size(), " bytes, must be 1 .. ",
                                                   kMaxParameterName, " of printable ASCII"));
  }
  const std::string at = absl::StrCat("parameter ", parameter.name(), ": ");
  if (parameter.shape_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(at, "shape has ", parameter.shape_size(),
                                                   " dimensions, must be 0 .. ", kMaxDimensions));
  }
  uint64_t elements = 1;
  for (int i = 0; i < parameter.shape_size(); ++i) {
    const uint64_t dimension = parameter.shape(i);
    if (dimension == 0) {
      return absl::InvalidArgumentError(absl::StrCat(at, "shape[", i, "] is 0, must be >= 1"));
    }
    if (dimension > kMaxElements / elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          at, "shape[", i, "] is ", dimension, ": more than ", kMaxElements, " elements in all"));
    }
    elements *= dimension;
  }
  if (parameter.dtype() == v1::DTYPE_UNSPECIFIED || !v1::DType_IsValid(parameter.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(at, "dtype is ", static_cast<int>(parameter.dtype()),
                     ", must be 1 (float32), 2 (bfloat16) or 3 (float16)"));
  }
  if (parameter.frozen() && !parameter.group().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(at, "group is \"", parameter.group(), "\", but a frozen parameter has none"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroupExists(const v1::JobDefinition& job, absl::string_view field,
                              const std::string& group) {
  if (group.empty() || GroupIndex(job, group) >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is \"", group, "\", which is none of the job's ", job.groups_size(), " groups"));
}

absl::Status ValidateGroups(const v1::JobDefinition& job) {
  if (job.groups_size() < 1 || job.groups_size() > kMaxGroups) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups has ", job.groups_size(), " entries, must be 1 .. ", kMaxGroups));
  }
  std::set<std::string> names;
  for (const v1::ParameterGroup& group : job.groups()) {
    KAON_RETURN_IF_ERROR(ValidateGroup(group));
    if (!names.insert(group.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups.name \"", group.name(), "\" is there twice, must be unique"));
    }
  }
  KAON_RETURN_IF_ERROR(CheckGroupExists(job, "matrix_group", job.matrix_group()));
  return CheckGroupExists(job, "scalar_group", job.scalar_group());
}

absl::Status ValidateParameters(const v1::JobDefinition& job) {
  if (job.parameters_size() < 1 || job.parameters_size() > kMaxParameters) {
    return absl::InvalidArgumentError(absl::StrCat("parameters has ", job.parameters_size(),
                                                   " entries, must be 1 .. ", kMaxParameters));
  }
  std::set<std::string> names;
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterSpec& parameter = job.parameters(id);
    KAON_RETURN_IF_ERROR(ValidateParameter(parameter, id));
    if (!names.insert(parameter.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameters[", id, "].name \"", parameter.name(), "\" is there twice, must be unique"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateJob(const v1::JobDefinition& job) {
  if (!IsName(job.name(), 63, "")) {
    return absl::InvalidArgumentError(
        absl::StrCat("name is \"", job.name(), "\", must match [a-z0-9-]{1,63}"));
  }
  KAON_RETURN_IF_ERROR(CheckMaxGradNorm(job.max_grad_norm()));
  if (job.world_size() < 1 || job.world_size() > kMaxWorldSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("world_size is ", job.world_size(), ", must be 1 .. ", kMaxWorldSize));
  }
  KAON_RETURN_IF_ERROR(ValidateGroups(job));
  KAON_RETURN_IF_ERROR(ValidateParameters(job));
  KAON_ASSIGN_OR_RETURN(const v1::Placement routes, RouteParameters(job));
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterPlacement& route = routes.parameters(id);
    if (route.group().empty()) continue;
    const v1::ParameterSpec& parameter = job.parameters(id);
    const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
    const v1::ParameterGroup& group = job.groups(GroupIndex(job, route.group()));
    const absl::Status rule = kernels::ValidateRule(RuleConfigOf(group, parameter, route), shape);
    if (!rule.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name(), ", group ",
                                                     group.name(), ": ", rule.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateTokenWeight(absl::string_view field, double token_weight) {
  if (token_weight >= kMinTokenWeight && token_weight <= kMaxTokenWeight) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", token_weight, ", must be ", kMinTokenWeight, " .. 2^40"));
}

absl::Status ValidateLearningRate(absl::string_view field, double learning_rate) {
  if (learning_rate >= 0 && learning_rate <= kMaxFloat) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", learning_rate, ", must be 0 .. ", kMaxFloat));
}

absl::Status ValidateShare(double token_weight, uint32_t micro_batches,
                           double learning_rate_multiplier) {
  KAON_RETURN_IF_ERROR(ValidateTokenWeight("token_weight", token_weight));
  if (micro_batches < 1 || micro_batches > kMaxMicroBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batches is ", micro_batches, ", must be 1 .. ", kMaxMicroBatches));
  }
  if (!std::isfinite(learning_rate_multiplier) || learning_rate_multiplier < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "learning_rate_multiplier is ", learning_rate_multiplier, ", must be finite and >= 0"));
  }
  return absl::OkStatus();
}

absl::Status ValidateMultiplier(const v1::JobDefinition& job, double learning_rate_multiplier) {
  for (const v1::ParameterGroup& group : job.groups()) {
    KAON_RETURN_IF_ERROR(
        ValidateLearningRate(absl::StrCat("group ", group.name(), ": lr ", group.lr(),
                                          " * learning_rate_multiplier ", learning_rate_multiplier),
                             group.lr() * learning_rate_multiplier));
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
