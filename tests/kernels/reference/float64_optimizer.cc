#include "tests/kernels/reference/float64_optimizer.h"

#include <algorithm>
#include <cmath>

namespace kaon::reference {

std::vector<double> WeightedMean(const std::vector<std::vector<double>>& gradients,
                                 const std::vector<double>& weights, double loss_scale) {
  std::vector<double> mean(gradients.at(0).size(), 0.0);
  double total = 0;
  for (size_t worker = 0; worker < gradients.size(); ++worker) {
    total += weights[worker];
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += weights[worker] * gradients[worker][i];
  }
  for (double& x : mean) x = x / total / loss_scale;
  return mean;
}

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

double ClipFactor(const std::vector<double>& live_norms, double max_norm) {
  if (max_norm == 0 || live_norms.empty()) return 1;
  return std::min(1.0, max_norm / (Norm(live_norms) + 1e-6));
}

}  // namespace kaon::reference
