// Scalars and faults of one update by Muon, the same on every device (formulas [M1]-[M5]). Pure
// functions; any thread.
#ifndef KAON_KERNELS_MUON_SCALARS_H_
#define KAON_KERNELS_MUON_SCALARS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/float_bits.h"
#include "kernels/matrix_layout.h"
#include "kernels/mutation.h"
#include "kernels/optimizer_rule.h"
#include "kernels/rules/gradient_clip.h"
#include "kernels/rules/muon.h"
#include "kernels/rules/muon_elements.h"
#include "kernels/update.h"

namespace kaon::kernels {

inline MuonMomentumScalars MomentumScalars(const MuonConfig& config, const UpdateScalars& scalars) {
  MuonMomentumScalars before;
  before.clip = PrepareClip(scalars.clip_factor);
  before.momentum = static_cast<float>(config.momentum);
  before.grad_share =
      (config.momentum_form == MomentumForm::kSum) != Mutated(Mutation::kEmaAndSumSwapped)
          ? 1.0f
          : static_cast<float>(1.0 - config.momentum);
  before.nesterov = config.nesterov;
  before.decay = PrepareDecay(config, scalars.lr);
  return before;
}

// Of a block of a parameter with that shape.
inline MuonWeightScalars WeightScalars(const MuonConfig& config, const UpdateScalars& scalars,
                                       absl::Span<const uint64_t> shape, const MatrixBlock& block) {
  const bool from_kernel = Mutated(Mutation::kConvScaleFromKernelSize) && shape.size() > 3;
  const double step_size =
      scalars.lr * (from_kernel ? Muon::UpdateScaleOf(config, shape[2], shape[3])
                                : Muon::UpdateScaleOf(config, block.rows, block.cols));
  MuonWeightScalars after;
  after.decay =
      PrepareDecay(config, Mutated(Mutation::kDecayWithScaledRate) ? step_size : scalars.lr);
  after.step_size = static_cast<float>(step_size);
  return after;
}

// Facts about the new weights of one block.
struct SteppedBlock {
  // Of the orthogonalized update.
  double sum_squares = 0;
  uint32_t largest_weight_bits = 0;
};

// `most_norm_of_rank_1` is MostOrthogonalNorm of the config and rank 1.
inline UpdateFault FaultOf(const MatrixBlock& block, const SteppedBlock& stepped,
                           double most_norm_of_rank_1) {
  const int64_t rank = std::min(block.rows, block.cols);
  // The negated comparison also catches a norm that is NaN.
  if (rank > 0 && !(std::sqrt(stepped.sum_squares) <=
                    most_norm_of_rank_1 * std::sqrt(static_cast<double>(rank)))) {
    return UpdateFault::kTooLarge;
  }
  return IsFiniteMagnitude(stepped.largest_weight_bits) ? UpdateFault::kNone
                                                        : UpdateFault::kNotFinite;
}

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_MUON_SCALARS_H_
