#include "tests/kernels/reference/float64_element_wise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kaon::reference {

void WeightDecay::Apply(double lr, double& grad, double& param) const {
  if (mode == Decay::kL2) grad = grad + amount * param;
  if (mode == Decay::kDecoupled) param = param * (1 - lr * amount);
  if (mode == Decay::kIndependent) param = param * (1 - amount);
  if (mode == Decay::kPalm) param = param * (1 - amount * lr * lr);
}

void Adam::Step(const std::vector<double>& grad, std::vector<double>& param) {
  m.resize(grad.size(), 0.0);
  v.resize(grad.size(), 0.0);
  largest_v.resize(grad.size(), 0.0);
  ++t;
  const double c1 = bias_correction ? 1 - std::pow(beta1, static_cast<double>(t)) : 1;
  const double c2 = bias_correction ? 1 - std::pow(beta2, static_cast<double>(t)) : 1;
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = grad[i];
    decay.Apply(lr, g, param[i]);
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    if (store != nullptr) v[i] = store(v[i]);
    largest_v[i] = std::max(largest_v[i], v[i]);
    const double second = amsgrad ? largest_v[i] : v[i];
    if (eps_beside_corrected_root) {
      param[i] -= lr * (m[i] / c1) / (std::sqrt(second / c2) + eps);
    } else {
      param[i] -= lr * m[i] / (std::sqrt(second) + eps) * std::sqrt(c2) / c1;
    }
  }
}

void Sgd::Step(const std::vector<double>& grad, std::vector<double>& param) {
  const bool first = buffer.empty();
  buffer.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = grad[i];
    decay.Apply(lr, g, param[i]);
    double update = g;
    if (momentum != 0) {
      buffer[i] = first ? g : momentum * buffer[i] + (1 - dampening) * g;
      update = nesterov ? g + momentum * buffer[i] : buffer[i];
    }
    param[i] -= lr * update;
  }
}

void Lion::Step(const std::vector<double>& grad, std::vector<double>& param) {
  m.resize(grad.size(), 0.0);
  closest_to_tie.resize(grad.size(), std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = grad[i];
    decay.Apply(lr, g, param[i]);
    const double mixed = beta1 * m[i] + (1 - beta1) * g;
    if (mixed > 0) param[i] -= lr;
    if (mixed < 0) param[i] += lr;
    closest_to_tie[i] = std::min(closest_to_tie[i], std::abs(mixed));
    m[i] = beta2 * m[i] + (1 - beta2) * g;
  }
}

}  // namespace kaon::reference
