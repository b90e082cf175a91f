#include "job/update_bound.h"

#include <cmath>
#include <limits>

#include "job/decide.h"

namespace kaon::job {
namespace {

// Returns what decay takes from a weight of size 1 ([W1]); l2 decay is part of the gradient.
double DecayOf(const v1::ParameterGroup& group, double weight_decay, double lr) {
  switch (group.decay_mode()) {
    case v1::DECAY_MODE_INDEPENDENT:
      return weight_decay;
    case v1::DECAY_MODE_PALM:
      return weight_decay * lr * lr;
    case v1::DECAY_MODE_L2:
      return 0;
    default:
      return weight_decay * lr;
  }
}

}  // namespace

double MostWeightAfter(const v1::ParameterGroup& group, const UpdateFacts& facts) {
  const double weight_decay = group.weight_decay() * facts.weight_decay_multiplier;
  double gradient = facts.gradient_absolute_max;
  if (group.decay_mode() == v1::DECAY_MODE_L2) {
    gradient += weight_decay * facts.weight_absolute_max;
    // No rule keeps its moments finite beyond this bound ([T3]).
    if (gradient > kMostGradient) return std::numeric_limits<double>::infinity();
  }
  double step = 1;
  if (group.rule() == v1::RULE_SGD) step = gradient;
  if (group.rule() == v1::RULE_MUON) {
    step = group.muon().scale_extra() * std::sqrt(static_cast<double>(facts.num_elements));
  }
  const double kept = std::abs(1 - DecayOf(group, weight_decay, facts.lr));
  return kept * facts.weight_absolute_max + facts.lr * step;
}

}  // namespace kaon::job
