// Means, norms and clip factors in float64, written from numerics.md without code of kernels/. The
// tests of the kernels compare with them. Pure functions; any thread.
#ifndef KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_
#define KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_

#include <vector>

namespace kaon::reference {

// Returns sum_i weight_i g_i / sum_i weight_i / loss_scale.
std::vector<double> WeightedMean(const std::vector<std::vector<double>>& gradients,
                                 const std::vector<double>& weights, double loss_scale);

double Norm(const std::vector<double>& x);

// Returns the clip factor of [C5] for the norm over the live groups ([C8]).
double ClipFactor(const std::vector<double>& live_norms, double max_norm);

}  // namespace kaon::reference

#endif  // KAON_TESTS_KERNELS_REFERENCE_FLOAT64_OPTIMIZER_H_
