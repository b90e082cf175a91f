// Norm clipping as a pure function of per-parameter sums of squares (numerics.md, rules [C2]-[C8]).
// The coordinator's decide() uses it. Any thread.
#ifndef KAON_KERNELS_REDUCE_GRAD_CLIP_H_
#define KAON_KERNELS_REDUCE_GRAD_CLIP_H_

#include <vector>

#include "absl/types/span.h"

namespace kaon::kernels {

// One trainable parameter that has a gradient this step.
struct ClipInput {
  // Index of its group, and of its norm group.
  int group = 0;
  int norm_group = 0;
  // Never scaled, whatever the norms: a scale-invariant rule, or the policy ([C7]).
  bool exempt = false;
  // False for a copy of another parameter: no norm counts it, but it is scaled like the rest (rule
  // [C2]).
  bool counted = true;
  double sum_squares = 0;
};

// The norm of a norm group that determines its factor (rule [C8]).
enum class ClipScope { kLive, kAll };

struct ClipPolicy {
  // Indexed by norm group; 0 = no clipping (rule [C5]).
  std::vector<double> max_grad_norms;
  ClipScope scope = ClipScope::kLive;
  // Lower bound of every factor; 0 = no bound (rule [C6]).
  double floor = 0;
};

struct NormGroupClip {
  // Norm over all counted inputs of the norm group, including exempt ones (rule [C3]).
  double norm = 0;
  // Norm over the inputs that are not exempt.
  double live_norm = 0;
  // Factor of every input that is not exempt; exactly 1 leaves it bit-identical.
  double clip_factor = 1;
};

struct ClipResult {
  // Indexed by group, independent of the norm groups of its inputs.
  std::vector<double> group_norms;
  // Indexed by norm group.
  std::vector<NormGroupClip> norm_groups;
};

// Returns max_grad_norm / (norm + 1e-6), at least `floor` and at most 1 (rules [C5] and [C6]).
// Returns 1 if max_grad_norm is 0. `norm` is finite.
double ClipFactor(double norm, double max_grad_norm, double floor);

// Computes norms and factors. `inputs` are in parameter-id order; the sums are added in that order.
// All sums are finite and all indices in range (CHECK). A norm group without inputs has norm 0 and
// factor 1 (rule [C4]).
ClipResult ClipByNorm(absl::Span<const ClipInput> inputs, int num_groups, const ClipPolicy& policy);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_GRAD_CLIP_H_
