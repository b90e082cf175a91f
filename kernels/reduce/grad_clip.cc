#include "kernels/reduce/grad_clip.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "kernels/mutation.h"

namespace kaon::kernels {

double ClipFactor(double norm, double max_grad_norm, double floor) {
  // 0 turns clipping off, unlike PyTorch's, which zeroes the gradients.
  if (max_grad_norm == 0) return 1;
  const double lowest = Mutated(Mutation::kClipFloorIgnored) ? 0 : floor;
  const double coefficient = std::max(max_grad_norm / (norm + 1e-6), lowest);
  return coefficient < 1 ? coefficient : 1;
}

ClipResult ClipByNorm(absl::Span<const ClipInput> inputs, int num_groups,
                      const ClipPolicy& policy) {
  const int num_norm_groups = static_cast<int>(policy.max_grad_norms.size());
  std::vector<double> by_group(num_groups, 0.0);
  std::vector<double> all(num_norm_groups, 0.0);
  std::vector<double> live(num_norm_groups, 0.0);
  std::vector<bool> has_live(num_norm_groups, false);
  for (const ClipInput& input : inputs) {
    CHECK(std::isfinite(input.sum_squares)) << "sum of squares " << input.sum_squares
                                            << " of group " << input.group << " must be finite";
    CHECK(input.group >= 0 && input.group < num_groups)
        << "group " << input.group << " of " << num_groups;
    CHECK(input.norm_group >= 0 && input.norm_group < num_norm_groups)
        << "norm group " << input.norm_group << " of " << num_norm_groups;
    const bool is_live = Mutated(Mutation::kExemptCountedAsLive) || !input.exempt;
    if (is_live) has_live[input.norm_group] = true;
    if (!input.counted && !Mutated(Mutation::kCopyCountedInNorm)) continue;
    by_group[input.group] += input.sum_squares;
    all[input.norm_group] += input.sum_squares;
    if (is_live) live[input.norm_group] += input.sum_squares;
  }

  ClipResult result;
  for (const double sum : by_group) result.group_norms.push_back(std::sqrt(sum));
  for (int n = 0; n < num_norm_groups; ++n) {
    NormGroupClip clip;
    clip.norm = std::sqrt(all[n]);
    clip.live_norm = std::sqrt(live[n]);
    const double norm = policy.scope == ClipScope::kAll ? clip.norm : clip.live_norm;
    // If nothing can be scaled, no decision needs the norm (rule [T5]).
    if (has_live[n]) clip.clip_factor = ClipFactor(norm, policy.max_grad_norms[n], policy.floor);
    result.norm_groups.push_back(clip);
  }
  return result;
}

}  // namespace kaon::kernels
