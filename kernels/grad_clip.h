// Norm clipping as a pure function of per-parameter sums of squares (numerics.md [C2]-[C8], [T5]).
// Used by the coordinator's decide() and by kaon-train --local. Any thread.
#ifndef KAON_KERNELS_GRAD_CLIP_H_
#define KAON_KERNELS_GRAD_CLIP_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kaon::kernels {

// One trainable parameter that has a gradient this step.
struct ClipInput {
  // Index into the groups.
  int group = 0;
  double sum_squares = 0;
};

struct ClipResult {
  // Over all inputs, exempt ones included ([C3]).
  double grad_norm = 0;
  // Over the inputs of groups that are not exempt: scope `live` ([C8]).
  double live_norm = 0;
  // Per group.
  std::vector<double> group_norms;
  // Per group; exactly 1 for exempt groups, for max_grad_norm = 0 and when the norm is within it
  // ([C5], [C7]).
  std::vector<double> clip_factors;
};

// `inputs` in parameter-id order: the sums are added in that order. `exempt[g]` says whether group
// g is exempt; its size is the number of groups. All sums must be finite (CHECK). c = max_grad_norm
// / (live_norm + 1e-6), applied only if c < 1 ([C5]).
ClipResult ClipByNorm(absl::Span<const ClipInput> inputs, const std::vector<bool>& exempt,
                      double max_grad_norm);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GRAD_CLIP_H_
