// How orthogonal the newest update of an orthogonalizing rule was, told from the weights before and
// after it. For people who watch a run; no step depends on it. Pure function over borrowed buffers;
// any thread.
#ifndef KAON_KERNELS_ORTHOGONALITY_H_
#define KAON_KERNELS_ORTHOGONALITY_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

// Multiplications up to which the error is computed from whole Gram matrices, over all blocks.
inline constexpr int64_t kMostGramProducts = int64_t{1} << 27;
// Elements of a block that is held as a whole for that.
inline constexpr int64_t kMostGramElements = int64_t{1} << 22;
// Elements of the blocks that are looked at: the first ones with so many together. Whoever asks
// waits with the shard's steps.
inline constexpr int64_t kMostOrthogonalityElements = int64_t{1} << 25;
// Fixed vectors of +-1 on which it is estimated otherwise.
inline constexpr int kOrthogonalityProbes = 8;

// The largest over the blocks of ||O O^T - I||_F / sqrt(rows), rows <= columns or else transposed,
// where O is what `before` lost on its way to `after` apart from decay, divided by learning rate
// and scale ([M4], [M5]). In float64, but no better than the rounding of the weights to fp32
// allows. Beyond the Gram limits above the norm is estimated, to some percent. Absent when the
// learning rate is 0, the parameter has no element, or its first block is beyond the last limit.
std::optional<double> OrthogonalityError(const MuonConfig& config, double lr,
                                         absl::Span<const uint64_t> shape,
                                         absl::Span<const float> before,
                                         absl::Span<const float> after);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALITY_H_
