#include "tests/kernels/reference/float64_decision.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace kaon::reference {
namespace {

using Selection = std::function<bool(const DecisionParameter&)>;

bool AllFinite(const DecisionParameter& parameter) {
  return std::all_of(parameter.grad.begin(), parameter.grad.end(),
                     [](double g) { return std::isfinite(g); });
}

// Joins the step at all ([T7], [T8]).
bool TakesPart(const DecisionParameter& parameter) {
  return !parameter.frozen && !parameter.missing;
}

// Sums in extended precision, so that its own rounding is below the tolerance.
double NormOver(const std::vector<DecisionParameter>& parameters, const Selection& selected) {
  long double squares = 0;
  for (const DecisionParameter& parameter : parameters) {
    // Each logical element counts once ([C2]).
    if (!TakesPart(parameter) || parameter.is_copy || !selected(parameter)) continue;
    for (const double g : parameter.grad) squares += static_cast<long double>(g) * g;
  }
  return static_cast<double>(std::sqrt(squares));
}

double FactorFor(double norm, double max_norm, double floor) {
  if (max_norm == 0) return 1;
  double factor = max_norm / (norm + 1e-6);
  if (factor < floor) factor = floor;
  return std::min(factor, 1.0);
}

}  // namespace

Decision DecideStep(const DecisionPolicy& policy,
                    const std::vector<DecisionParameter>& parameters) {
  Decision decision;
  for (const DecisionParameter& parameter : parameters) {
    if (TakesPart(parameter) && !AllFinite(parameter)) {
      // A gradient that is not finite skips the step ([T3]).
      decision.applied = false;
      decision.has_norms = false;
      return decision;
    }
  }
  const auto is_live = [&policy](const DecisionParameter& p) {
    return !policy.groups[p.group].exempt();
  };
  const bool has_threshold = std::isfinite(policy.skip_threshold);
  for (const DecisionParameter& parameter : parameters) {
    const bool clips = policy.max_grad_norms[parameter.norm_group] > 0;
    const bool checks = has_threshold && parameter.norm_group == 0;
    if (!parameter.frozen && is_live(parameter) && (clips || checks)) decision.read_a_norm = true;
  }
  for (int n = 0; n < static_cast<int>(policy.max_grad_norms.size()); ++n) {
    DecidedNorm result;
    const auto in_it = [n](const DecisionParameter& p) { return p.norm_group == n; };
    const auto live_in_it = [&](const DecisionParameter& p) { return in_it(p) && is_live(p); };
    result.norm = NormOver(parameters, in_it);
    result.live_norm = NormOver(parameters, live_in_it);
    const bool any_live =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const DecisionParameter& p) { return TakesPart(p) && live_in_it(p); });
    if (any_live) {
      result.clip_factor = FactorFor(policy.scope_is_all ? result.norm : result.live_norm,
                                     policy.max_grad_norms[n], policy.floor);
    }
    decision.norm_groups.push_back(result);
  }
  for (int g = 0; g < static_cast<int>(policy.groups.size()); ++g) {
    decision.group_norms.push_back(
        NormOver(parameters, [g](const DecisionParameter& p) { return p.group == g; }));
  }
  // [T3]: nothing is stepped with an element beyond 2^62.
  for (const DecisionParameter& parameter : parameters) {
    if (!TakesPart(parameter)) continue;
    const double factor =
        is_live(parameter) ? decision.norm_groups[parameter.norm_group].clip_factor : 1;
    for (const double g : parameter.grad) {
      if (std::fabs(g) * factor > 4611686018427387904.0) decision.applied = false;
    }
  }
  if (!decision.applied) return decision;
  // The live norm of main is compared with the threshold ([T4]).
  decision.applied = !(decision.norm_groups[0].live_norm > policy.skip_threshold);
  return decision;
}

void LossScaler::AfterStep(bool overflow) {
  if (!dynamic) return;
  if (overflow) {
    steps_without_overflow = 0;
    --overflows_left;
    if (overflows_left <= 0) scale = std::max(scale * 0.5, min_scale);
    return;
  }
  ++steps_without_overflow;
  if (steps_without_overflow == growth_interval) {
    steps_without_overflow = 0;
    overflows_left = hysteresis;
    scale *= 2;
  }
}

double FactorAt(const ScheduleShape& shape, int64_t n) {
  if (n < shape.warmup) return static_cast<double>((n + 1.0L) / (shape.warmup + 1.0L));
  if (shape.descent == Descent::kNone) return 1;
  const int64_t length =
      shape.descent == Descent::kLinearAtTheEnd ? shape.decay : shape.total - shape.warmup;
  // Part of the way down that is left, from 1 to 0.
  const int64_t left = std::clamp<int64_t>(shape.total - n, 0, length);
  const long double linear = static_cast<long double>(left) / length;
  const long double sine = std::sin(std::acos(-1.0L) / 2 * linear);
  const long double share = shape.descent == Descent::kCosine ? sine * sine : linear;
  return static_cast<double>(shape.final_factor + (1.0L - shape.final_factor) * share);
}

}  // namespace kaon::reference
