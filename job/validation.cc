#include "job/validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/definition.h"
#include "job/field_checks.h"
#include "job/group_validation.h"
#include "job/route_validation.h"
#include "job/routes.h"
#include "job/rule_config.h"
#include "job/workers.h"
#include "kernels/matrix_layout.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

constexpr uint64_t kMaxElements = uint64_t{1} << 40;
constexpr int kMaxParameters = 100000;
constexpr int kMaxGroups = 1000;
constexpr int kMaxRoutingRules = 1000;
constexpr int kMaxNormGroups = 100;
constexpr int kMaxAttributes = 16;
constexpr int kMaxDimensions = 8;
constexpr size_t kMaxParameterName = 512;
// A safetensors file gives this name another meaning, so no exported or imported tensor can have
// it.
constexpr absl::string_view kMetadataName = "__metadata__";
constexpr size_t kMaxPattern = 1024;
constexpr uint32_t kMaxCounter = std::numeric_limits<uint32_t>::max();
// With a far smaller limit the clip factor, max_grad_norm / norm, would become 0, which no shard
// applies.
constexpr double kMinGradNorm = 1e-30;

using Names = absl::flat_hash_set<std::string>;

absl::Status CheckMaxGradNorm(absl::string_view field, double value) {
  if (value == 0 || (value >= kMinGradNorm && value <= kMaxFloat)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be 0 (off) or ", kMinGradNorm, " .. ", kMaxFloat));
}

absl::Status CheckEntries(absl::string_view field, int entries, int least, int most) {
  if (entries >= least && entries <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", entries, " entries, must be ", least, " .. ", most));
}

absl::Status CheckUnique(absl::string_view field, const std::string& name, Names& names) {
  if (names.insert(name).second) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " \"", proto::Excerpt(name), "\" is there twice, must be unique"));
}

// Accepts an empty `name` or one of `known`.
absl::Status CheckKnown(absl::string_view field, const std::string& name, const Names& known,
                        absl::string_view what) {
  if (name.empty() || known.contains(name)) return absl::OkStatus();
  constexpr size_t kMostNamed = 16;
  std::vector<std::string> names(known.begin(), known.end());
  std::sort(names.begin(), names.end());
  const bool cut = names.size() > kMostNamed;
  if (cut) names.resize(kMostNamed);
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is \"", proto::Excerpt(name), "\", which is none of the ", "job's ",
                   known.size(), " ", what, ": ", absl::StrJoin(names, ", "), cut ? ", ..." : ""));
}

absl::Status CheckShape(const std::string& at, const v1::ParameterSpec& parameter) {
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
  return absl::OkStatus();
}

// Rejects a declared layout that cannot be true, whatever rule steps the parameter ([L5]). A group
// may make it harmless now, but the job would break when the route changes.
absl::Status CheckDeclaredLayout(const std::string& at, const v1::ParameterSpec& parameter) {
  if (!parameter.has_layout()) return absl::OkStatus();
  const std::vector<uint64_t> shape(parameter.shape().begin(), parameter.shape().end());
  const absl::Status status = kernels::CheckLayout(LayoutOf(parameter.layout()), shape);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(at, status.message()));
}

// Names that parameters and rules may refer to.
struct Targets {
  Names groups;
  Names norm_groups = {std::string(kMainNormGroup)};
};

absl::Status ValidateParameter(const v1::ParameterSpec& parameter, int id, const Targets& targets) {
  bool printable = !parameter.name().empty() && parameter.name().size() <= kMaxParameterName;
  for (char c : parameter.name()) printable = printable && absl::ascii_isprint(c);
  if (!printable) {
    return absl::InvalidArgumentError(absl::StrCat("parameters[", id, "].name has ",
                                                   parameter.name().size(), " bytes, must be 1 .. ",
                                                   kMaxParameterName, " of printable ASCII"));
  }
  if (parameter.name() == kMetadataName) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameters[", id, "].name is \"", kMetadataName,
                     "\", which means something else in a safetensors file: give it another name"));
  }
  const std::string at = absl::StrCat("parameter ", parameter.name(), ": ");
  KAON_RETURN_IF_ERROR(CheckShape(at, parameter));
  KAON_RETURN_IF_ERROR(CheckEnums(at, parameter));
  KAON_RETURN_IF_ERROR(CheckDeclaredLayout(at, parameter));
  KAON_RETURN_IF_ERROR(
      CheckKnown(absl::StrCat(at, "group"), parameter.group(), targets.groups, "groups"));
  KAON_RETURN_IF_ERROR(CheckKnown(absl::StrCat(at, "norm_group"), parameter.norm_group(),
                                  targets.norm_groups, "norm groups"));
  KAON_RETURN_IF_ERROR(CheckFactor(absl::StrCat(at, "lr_multiplier"), parameter.lr_multiplier()));
  KAON_RETURN_IF_ERROR(CheckFactor(absl::StrCat(at, "weight_decay_multiplier"),
                                   parameter.weight_decay_multiplier()));
  KAON_RETURN_IF_ERROR(
      CheckEntries(absl::StrCat(at, "attributes"), parameter.attributes_size(), 0, kMaxAttributes));
  for (const std::string& attribute : parameter.attributes()) {
    KAON_RETURN_IF_ERROR(CheckName(absl::StrCat(at, "attributes"), attribute));
  }
  return absl::OkStatus();
}

// Checks that a copy fits the parameter it is tied to ([C2]).
absl::Status CheckTie(const v1::ParameterSpec& copy, const v1::ParameterSpec* original) {
  const auto error = [&copy](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", copy.name(), ": tied_to is \"",
                                                   proto::Excerpt(copy.tied_to()), "\", ", why));
  };
  if (original == nullptr) return error("which is no parameter of the job");
  if (original == &copy) return error("which is the parameter itself");
  if (!original->tied_to().empty()) {
    return error(
        absl::StrCat("which is itself a copy, of \"", proto::Excerpt(original->tied_to()), "\""));
  }
  const auto differs = [&error](absl::string_view field, bool original_value) {
    return error(absl::StrCat("whose ", field, " is ", original_value ? "true" : "false",
                              ", must be that of the copy: set it on both or neither"));
  };
  if (original->frozen() != copy.frozen()) return differs("frozen", original->frozen());
  if (original->transposed() != copy.transposed()) {
    return differs("transposed", original->transposed());
  }
  if (absl::StrJoin(copy.shape(), ", ") != absl::StrJoin(original->shape(), ", ")) {
    return error(absl::StrCat("whose shape is [", absl::StrJoin(original->shape(), ", "),
                              "], must be that of the copy, [", absl::StrJoin(copy.shape(), ", "),
                              "]"));
  }
  return absl::OkStatus();
}

absl::Status ValidateParameters(const v1::JobDefinition& job, const Targets& targets) {
  KAON_RETURN_IF_ERROR(CheckEntries("parameters", job.parameters_size(), 1, kMaxParameters));
  absl::flat_hash_map<std::string, const v1::ParameterSpec*> by_name;
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterSpec& parameter = job.parameters(id);
    KAON_RETURN_IF_ERROR(ValidateParameter(parameter, id, targets));
    if (!by_name.emplace(parameter.name(), &parameter).second) {
      return absl::InvalidArgumentError(absl::StrCat("parameters[", id, "].name \"",
                                                     proto::Excerpt(parameter.name()),
                                                     "\" is there twice, must be unique"));
    }
  }
  for (const v1::ParameterSpec& parameter : job.parameters()) {
    if (parameter.tied_to().empty()) continue;
    const auto original = by_name.find(parameter.tied_to());
    KAON_RETURN_IF_ERROR(
        CheckTie(parameter, original == by_name.end() ? nullptr : original->second));
  }
  return absl::OkStatus();
}

absl::Status CheckOrdered(const std::string& at, absl::string_view what, bool has_both,
                          uint64_t least, uint64_t most) {
  if (!has_both || least <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(at, "min_", what, " is ", least,
                                                 ", must be 0 .. max_", what, ", which is ", most));
}

absl::Status ValidateRoutingRule(const v1::RoutingRule& rule, const Targets& targets) {
  KAON_RETURN_IF_ERROR(CheckName("routing_rules.name", rule.name()));
  const std::string at = absl::StrCat("routing rule ", rule.name(), ": ");
  KAON_RETURN_IF_ERROR(CheckEnums(at, rule));
  KAON_RETURN_IF_ERROR(
      CheckCount(absl::StrCat(at, "bytes of name_glob"), rule.name_glob().size(), 0, kMaxPattern));
  KAON_RETURN_IF_ERROR(CheckCount(absl::StrCat(at, "bytes of name_regex"), rule.name_regex().size(),
                                  0, kMaxPattern));
  if (!rule.attribute().empty()) {
    KAON_RETURN_IF_ERROR(CheckName(absl::StrCat(at, "attribute"), rule.attribute()));
  }
  KAON_RETURN_IF_ERROR(CheckOrdered(at, "ndim", rule.has_min_ndim() && rule.has_max_ndim(),
                                    rule.min_ndim(), rule.max_ndim()));
  KAON_RETURN_IF_ERROR(CheckOrdered(at, "elements",
                                    rule.has_min_elements() && rule.has_max_elements(),
                                    rule.min_elements(), rule.max_elements()));
  KAON_RETURN_IF_ERROR(
      CheckKnown(absl::StrCat(at, "group"), rule.group(), targets.groups, "groups"));
  KAON_RETURN_IF_ERROR(CheckKnown(absl::StrCat(at, "norm_group"), rule.norm_group(),
                                  targets.norm_groups, "norm groups"));
  KAON_RETURN_IF_ERROR(CheckFactor(absl::StrCat(at, "lr_multiplier"), rule.lr_multiplier()));
  KAON_RETURN_IF_ERROR(
      CheckFactor(absl::StrCat(at, "weight_decay_multiplier"), rule.weight_decay_multiplier()));
  const bool sets = !rule.group().empty() || !rule.norm_group().empty() || rule.has_layout() ||
                    rule.has_lr_multiplier() || rule.has_weight_decay_multiplier();
  if (sets) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(at,
                   "sets nothing, must set group, norm_group, layout, lr_multiplier or "
                   "weight_decay_multiplier"));
}

absl::Status ValidateRoutingRules(const v1::JobDefinition& job, const Targets& targets) {
  KAON_RETURN_IF_ERROR(
      CheckEntries("routing_rules", job.routing_rules_size(), 0, kMaxRoutingRules));
  Names names;
  for (const v1::RoutingRule& rule : job.routing_rules()) {
    KAON_RETURN_IF_ERROR(ValidateRoutingRule(rule, targets));
    KAON_RETURN_IF_ERROR(CheckUnique("routing_rules.name", rule.name(), names));
  }
  return absl::OkStatus();
}

absl::StatusOr<Targets> ValidateGroups(const v1::JobDefinition& job) {
  Targets targets;
  KAON_RETURN_IF_ERROR(CheckEntries("norm_groups", job.norm_groups_size(), 0, kMaxNormGroups));
  Names declared;
  for (const v1::NormGroup& group : job.norm_groups()) {
    KAON_RETURN_IF_ERROR(CheckName("norm_groups.name", group.name()));
    KAON_RETURN_IF_ERROR(CheckUnique("norm_groups.name", group.name(), declared));
    KAON_RETURN_IF_ERROR(CheckMaxGradNorm(
        absl::StrCat("norm group ", group.name(), ": max_grad_norm"), group.max_grad_norm()));
    targets.norm_groups.insert(group.name());
  }
  KAON_RETURN_IF_ERROR(CheckEntries("groups", job.groups_size(), 1, kMaxGroups));
  for (const v1::ParameterGroup& group : job.groups()) {
    KAON_RETURN_IF_ERROR(ValidateGroup(group));
    KAON_RETURN_IF_ERROR(CheckUnique("groups.name", group.name(), targets.groups));
    KAON_RETURN_IF_ERROR(CheckKnown(absl::StrCat("group ", group.name(), ": norm_group"),
                                    group.norm_group(), targets.norm_groups, "norm groups"));
  }
  KAON_RETURN_IF_ERROR(CheckKnown("matrix_group", job.matrix_group(), targets.groups, "groups"));
  KAON_RETURN_IF_ERROR(CheckKnown("scalar_group", job.scalar_group(), targets.groups, "groups"));
  return targets;
}

absl::Status ValidateLossScaler(const v1::LossScaler& scaler) {
  KAON_RETURN_IF_ERROR(
      CheckRange("loss_scaler.initial_scale", scaler.initial_scale(), kMinFloat, kMaxFloat));
  if (scaler.dynamic()) {
    KAON_RETURN_IF_ERROR(
        CheckRange("loss_scaler.min_scale", scaler.min_scale(), kMinFloat, kMaxFloat));
    // Otherwise the first overflow would have to raise the scale.
    if (scaler.min_scale() > scaler.initial_scale()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "loss_scaler.min_scale is ", scaler.min_scale(),
          ", must be <= loss_scaler.initial_scale, which is ", scaler.initial_scale()));
    }
    KAON_RETURN_IF_ERROR(
        CheckCount("loss_scaler.growth_interval", scaler.growth_interval(), 1, kMaxCounter));
    return CheckCount("loss_scaler.hysteresis", scaler.hysteresis(), 1, kMaxCounter);
  }
  absl::string_view field;
  if (scaler.has_min_scale()) field = "min_scale";
  if (scaler.has_growth_interval()) field = "growth_interval";
  if (scaler.has_hysteresis()) field = "hysteresis";
  if (field.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("loss_scaler.", field, " is set, must be unset: it needs dynamic true"));
}

// Validates the fields of the job itself.
absl::Status ValidateOwnFields(const v1::JobDefinition& job) {
  KAON_RETURN_IF_ERROR(CheckJobName("name", job.name()));
  KAON_RETURN_IF_ERROR(CheckEnums("", job));
  KAON_RETURN_IF_ERROR(CheckMaxGradNorm("max_grad_norm", job.max_grad_norm()));
  KAON_RETURN_IF_ERROR(ValidateWorkers(job));
  KAON_RETURN_IF_ERROR(CheckRange("clip_floor", job.clip_floor(), 0, 1));
  if (job.has_grad_norm_skip_threshold()) {
    KAON_RETURN_IF_ERROR(CheckRange("grad_norm_skip_threshold", job.grad_norm_skip_threshold(),
                                    std::numeric_limits<double>::denorm_min(),
                                    std::numeric_limits<double>::max()));
  }
  return ValidateLossScaler(job.loss_scaler());
}

// Validates everything but the routes.
absl::Status ValidateDefinition(const v1::JobDefinition& job) {
  KAON_RETURN_IF_ERROR(ValidateOwnFields(job));
  KAON_ASSIGN_OR_RETURN(const Targets targets, ValidateGroups(job));
  KAON_RETURN_IF_ERROR(ValidateParameters(job, targets));
  return ValidateRoutingRules(job, targets);
}

}  // namespace

absl::StatusOr<v1::Placement> ValidateJob(const v1::JobDefinition& job) {
  KAON_RETURN_IF_ERROR(ValidateDefinition(job));
  KAON_ASSIGN_OR_RETURN(v1::Placement routes, RouteParameters(job));
  KAON_RETURN_IF_ERROR(ValidateRoutes(job.groups(), job, routes));
  return routes;
}

absl::Status ValidateTokenWeight(absl::string_view field, double token_weight) {
  if (token_weight >= kMinTokenWeight && token_weight <= kMaxTokenWeight) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", token_weight, ", must be ", kMinTokenWeight, " .. 2^40"));
}

absl::Status ValidateLearningRate(absl::string_view field, double learning_rate) {
  return CheckFactor(field, learning_rate);
}

absl::Status ValidateContributions(uint32_t micro_batches, uint64_t num_parameters,
                                   uint32_t world_size) {
  const uint64_t each = std::max<uint64_t>(1, num_parameters * world_size);
  const uint64_t most = std::max<uint64_t>(1, kMaxContributions / each);
  if (micro_batches <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("micro_batches is ", micro_batches,
                                                 ", must be 1 .. ", most, " with ", num_parameters,
                                                 " parameters and ", world_size, " workers"));
}

absl::Status ValidateShare(double token_weight, uint32_t micro_batches,
                           const RateMultipliers& multipliers) {
  KAON_RETURN_IF_ERROR(ValidateTokenWeight("token_weight", token_weight));
  if (micro_batches < 1 || micro_batches > kMaxMicroBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batches is ", micro_batches, ", must be 1 .. ", kMaxMicroBatches));
  }
  const auto check = [](double factor, absl::string_view group) {
    if (std::isfinite(factor) && factor >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        group.empty() ? "learning_rate_multiplier"
                      : absl::StrCat("group_multipliers of group \"", proto::Excerpt(group), "\""),
        " is ", factor, ", must be finite and >= 0"));
  };
  KAON_RETURN_IF_ERROR(check(multipliers.step, ""));
  for (const auto& [group, factor] : multipliers.groups) {
    KAON_RETURN_IF_ERROR(check(factor, group));
  }
  return absl::OkStatus();
}

}  // namespace kaon::job
