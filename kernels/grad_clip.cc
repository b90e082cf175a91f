#include "kernels/grad_clip.h"

#include <glog/logging.h>

#include <cmath>

namespace kaon::kernels {

ClipResult ClipByNorm(absl::Span<const ClipInput> inputs, const std::vector<bool>& exempt,
                      double max_grad_norm) {
  double total = 0;
  double live = 0;
  std::vector<double> per_group(exempt.size(), 0.0);
  for (const ClipInput& input : inputs) {
    CHECK(std::isfinite(input.sum_squares)) << "sum of squares " << input.sum_squares
                                            << " of group " << input.group << " must be finite";
    CHECK(input.group >= 0 && input.group < static_cast<int>(exempt.size()))
        << "group " << input.group << " of " << exempt.size();
    total += input.sum_squares;
    per_group[input.group] += input.sum_squares;
    if (!exempt[input.group]) live += input.sum_squares;
  }

  ClipResult result;
  result.grad_norm = std::sqrt(total);
  result.live_norm = std::sqrt(live);
  result.group_norms.reserve(exempt.size());
  for (const double sum : per_group) result.group_norms.push_back(std::sqrt(sum));
  result.clip_factors.assign(exempt.size(), 1.0);
  // [C5]: 0 turns clipping off. [T5]: with every group exempt no norm decides anything.
  bool any_live = false;
  for (const bool is_exempt : exempt) any_live |= !is_exempt;
  if (max_grad_norm == 0 || !any_live) return result;

  const double coefficient = max_grad_norm / (result.live_norm + 1e-6);
  if (!(coefficient < 1)) return result;
  for (size_t g = 0; g < exempt.size(); ++g) {
    if (!exempt[g]) result.clip_factors[g] = coefficient;
  }
  return result;
}

}  // namespace kaon::kernels
