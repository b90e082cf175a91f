// Norm clipping as a pure function of per-parameter sums of squares (numerics.md [C2]-[C8]). Used
// by the coordinator's decide(). Any thread.
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
  // Never scaled, whatever the norms ([C7]).
  bool exempt = false;
  // False for a copy of another parameter: in no norm, but scaled like the rest ([C2]).
  bool counted = true;
  double sum_squares = 0;
};

// Which norm of a norm group its factor is taken from ([C8]).
enum class ClipScope { kLive, kAll };

struct ClipPolicy {
  // By norm group; 0 = off ([C5]).
  std::vector<double> max_grad_norms;
  ClipScope scope = ClipScope::kLive;
  // No factor is below it; 0 = off ([C6]).
  double floor = 0;
};

struct NormGroupClip {
  // Over all counted inputs of the norm group, exempt ones included ([C3]).
  double norm = 0;
  // Over those that are not exempt.
  double live_norm = 0;
  // Of every input that is not exempt; exactly 1 leaves it bit-identical.
  double clip_factor = 1;
};

struct ClipResult {
  // By group, whatever the norm groups of its inputs.
  std::vector<double> group_norms;
  // By norm group.
  std::vector<NormGroupClip> norm_groups;
};

// max_grad_norm / (norm + 1e-6), raised to `floor`, and 1 if that is not below 1 or max_grad_norm
// is 0 ([C5], [C6]). `norm` is finite.
double ClipFactor(double norm, double max_grad_norm, double floor);

// `inputs` in parameter-id order: the sums are added in that order. All sums are finite and all
// indices in range (CHECK). A norm group without inputs has norm 0 and factor 1 ([C4]).
ClipResult ClipByNorm(absl::Span<const ClipInput> inputs, int num_groups, const ClipPolicy& policy);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_GRAD_CLIP_H_
