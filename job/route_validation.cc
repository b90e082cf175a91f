#include "job/route_validation.h"

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "job/field_checks.h"
#include "job/names.h"
#include "job/rule_config.h"
#include "kernels/matrix_layout.h"
#include "kernels/optimizer_rule.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

using GroupsByName = absl::flat_hash_map<absl::string_view, const v1::ParameterGroup*>;

GroupsByName ByName(const Groups& groups) {
  GroupsByName by_name;
  for (const v1::ParameterGroup& group : groups) by_name[group.name()] = &group;
  return by_name;
}

// A product with its factors for error messages; only the text of a rejected product is built.
class Product {
 public:
  Product(absl::string_view name, double factor) { *this = Times(name, factor); }

  Product Times(absl::string_view name, double factor) const {
    Product product = *this;
    product.factors_[product.num_factors_++] = {name, factor};
    product.value_ *= factor;
    return product;
  }
  Product Times(const Product& other) const {
    Product product = *this;
    for (int i = 0; i < other.num_factors_; ++i) {
      product = product.Times(other.factors_[i].name, other.factors_[i].value);
    }
    return product;
  }

  double value() const { return value_; }
  std::string Text() const {
    return absl::StrJoin(factors_.begin(), factors_.begin() + num_factors_, " * ",
                         [](std::string* out, const Factor& factor) {
                           absl::StrAppend(out, factor.name, " ", factor.value);
                         });
  }

 private:
  struct Factor {
    absl::string_view name;
    double value = 0;
  };

  // At most: a decay, its multiplier, and twice a rate of four factors.
  std::array<Factor, 10> factors_;
  int num_factors_ = 0;
  double value_ = 1;
};

// One parameter with its group and route.
struct Routed {
  const v1::ParameterSpec& parameter;
  const v1::ParameterGroup& group;
  const v1::ParameterPlacement& route;
  std::vector<uint64_t> shape;

  std::string At() const {
    return absl::StrCat("parameter ", parameter.name(), ", group ", group.name(), ": ");
  }
};

// `where` follows the factors in the message.
absl::Status CheckProduct(const Routed& routed, absl::string_view what, const Product& product,
                          double most, absl::string_view where = "") {
  if (product.value() >= 0 && product.value() <= most) return absl::OkStatus();
  return CheckRange(absl::StrCat(routed.At(), what, product.Text(), where), product.value(), 0,
                    most);
}

absl::Status CheckDecay(const Routed& routed, const Product& rate) {
  const Product decay =
      Product("weight_decay", routed.group.weight_decay())
          .Times("weight_decay_multiplier", routed.route.weight_decay_multiplier());
  KAON_RETURN_IF_ERROR(CheckProduct(routed, "", decay, kMaxFloat));
  // A weight that loses more than itself would change its sign at every step.
  constexpr absl::string_view kOfAStep = "decay of a step, ";
  switch (routed.group.decay_mode()) {
    case v1::DECAY_MODE_DECOUPLED:
      return CheckProduct(routed, kOfAStep, decay.Times(rate), 1);
    case v1::DECAY_MODE_PALM:
      return CheckProduct(routed, kOfAStep, decay.Times(rate).Times(rate), 1);
    case v1::DECAY_MODE_INDEPENDENT:
      return CheckProduct(routed, kOfAStep, decay, 1);
    default:
      // L2 decay is part of the gradient.
      return absl::OkStatus();
  }
}

// Checks the factors that shards multiply an update by: each must fit in a float.
absl::Status CheckStepSizes(const Routed& routed, const kernels::RuleConfig& rule,
                            const Product& rate) {
  KAON_RETURN_IF_ERROR(CheckProduct(routed, "", rate, kMaxFloat));
  const v1::AdamWOptions& adamw = routed.group.adamw();
  if (routed.group.rule() == v1::RULE_ADAMW && adamw.bias_correction()) {
    // The first step has the largest correction ([A2]).
    const Product first = rate.Times("1 / (1 - beta1) =", 1 / (1 - adamw.beta1()));
    return CheckProduct(routed, "", first, kMaxFloat);
  }
  for (const kernels::ScaledMatrices& matrices :
       kernels::OrthogonalizedMatrices(rule, routed.shape)) {
    const Product size = rate.Times("update scale", matrices.scale);
    KAON_RETURN_IF_ERROR(
        CheckProduct(routed, "", size, kMaxFloat,
                     absl::StrCat(" of a matrix of ", matrices.rows, " x ", matrices.cols)));
  }
  return absl::OkStatus();
}

absl::Status CheckRate(const Routed& routed, const Product& rate) {
  KAON_RETURN_IF_ERROR(
      CheckStepSizes(routed, RuleConfigOf(routed.group, routed.parameter, routed.route), rate));
  return CheckDecay(routed, rate);
}

Product BaseRate(const Routed& routed) { return Product("lr", routed.group.lr()); }

// `row_runs` counts the pieces of all parameters so far.
absl::Status ValidateRoute(const Routed& routed, uint64_t& row_runs) {
  const kernels::RuleConfig rule = RuleConfigOf(routed.group, routed.parameter, routed.route);
  if (const auto* muon = std::get_if<kernels::MuonConfig>(&rule)) {
    const absl::Status fits = kernels::CheckLayout(muon->layout, routed.shape);
    if (!fits.ok()) return absl::InvalidArgumentError(absl::StrCat(routed.At(), fits.message()));
    row_runs += kernels::NumRowRuns(muon->layout, routed.shape);
    if (row_runs > kMostJobRowRuns) {
      return absl::InvalidArgumentError(
          absl::StrCat(routed.At(), "with its layout ", NameOf(routed.route.layout().kind()),
                       " the parameters of the job are cut into ", row_runs,
                       " pieces or more, must be <= ", kMostJobRowRuns));
    }
  }
  const Product rate = BaseRate(routed).Times("lr_multiplier", routed.route.lr_multiplier());
  KAON_RETURN_IF_ERROR(CheckStepSizes(routed, rule, rate));
  return CheckDecay(routed, rate);
}

// Returns the most that a step with these multipliers may use as the group's rate.
Product StepRate(const v1::ParameterGroup& group, const RateMultipliers& multipliers) {
  const Product rate =
      Product("lr", group.lr()).Times("learning_rate_multiplier", multipliers.step);
  const auto of_group = multipliers.groups.find(group.name());
  if (of_group == multipliers.groups.end()) return rate;
  return rate.Times("multiplier of the group", of_group->second);
}

// Calls `check` for each parameter of one of the groups.
template <typename Check>
absl::Status ForEachRouted(const Groups& groups, const v1::JobDefinition& job,
                           const v1::Placement& routes, const Check& check) {
  const GroupsByName by_name = ByName(groups);
  for (int id = 0; id < job.parameters_size(); ++id) {
    const v1::ParameterSpec& parameter = job.parameters(id);
    const v1::ParameterPlacement& route = routes.parameters(id);
    // Frozen parameters have no group.
    const auto group = by_name.find(route.group());
    if (group == by_name.end()) continue;
    KAON_RETURN_IF_ERROR(check(Routed{
        parameter, *group->second, route, {parameter.shape().begin(), parameter.shape().end()}}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRoutes(const Groups& groups, const v1::JobDefinition& job,
                            const v1::Placement& routes) {
  uint64_t row_runs = 0;
  return ForEachRouted(groups, job, routes, [&row_runs](const Routed& routed) {
    return ValidateRoute(routed, row_runs);
  });
}

absl::Status ValidateMultipliers(const Groups& groups, const v1::JobDefinition& job,
                                 const v1::Placement& routes, const RateMultipliers& multipliers) {
  for (const auto& [name, factor] : multipliers.groups) {
    if (GroupIndex(job, name) >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "group_multipliers names group \"", proto::Excerpt(name), "\", must be one of ",
        absl::StrJoin(job.groups(), ", ", [](std::string* out, const v1::ParameterGroup& group) {
          absl::StrAppend(out, group.name());
        })));
  }
  bool raises = false;
  for (const v1::ParameterGroup& group : groups) {
    const Product rate = StepRate(group, multipliers);
    KAON_RETURN_IF_ERROR(
        CheckFactor(absl::StrCat("group ", group.name(), ": ", rate.Text()), rate.value()));
    raises = raises || rate.value() > group.lr();
  }
  // Registration checked the products without a multiplier.
  if (!raises) return absl::OkStatus();
  return ForEachRouted(groups, job, routes, [&](const Routed& routed) {
    return CheckRate(
        routed,
        StepRate(routed.group, multipliers).Times("lr_multiplier", routed.route.lr_multiplier()));
  });
}

absl::Status ValidateRates(const Groups& groups, const v1::JobDefinition& job,
                           const v1::Placement& routes, const std::vector<double>& rates) {
  absl::flat_hash_map<const v1::ParameterGroup*, double> higher;
  for (int i = 0; i < groups.size(); ++i) {
    // Registration checked the products with the group's own rate.
    if (rates[i] > groups[i].lr()) higher[&groups[i]] = rates[i];
  }
  if (higher.empty()) return absl::OkStatus();
  return ForEachRouted(groups, job, routes, [&](const Routed& routed) {
    const auto rate = higher.find(&routed.group);
    if (rate == higher.end()) return absl::OkStatus();
    return CheckRate(routed, Product("learning rate", rate->second)
                                 .Times("lr_multiplier", routed.route.lr_multiplier()));
  });
}

}  // namespace kaon::job
