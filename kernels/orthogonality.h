// Measures how orthogonal the newest update of an orthogonalizing rule was, from the weights before
// and after it. For people who watch a run; no step depends on it. Pure function over borrowed
// buffers; any thread.
#ifndef KAON_KERNELS_ORTHOGONALITY_H_
#define KAON_KERNELS_ORTHOGONALITY_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "kernels/optimizer_rule.h"

namespace kaon::kernels {

// Maximum number of multiplications, over all blocks, for computing the error from whole Gram
// matrices.
inline constexpr int64_t kMostGramProducts = int64_t{1} << 27;
// Maximum number of elements of a block that is kept as a whole for that.
inline constexpr int64_t kMostGramElements = int64_t{1} << 22;
// Maximum number of elements of the first blocks that are measured together. The shard's steps wait
// meanwhile.
inline constexpr int64_t kMostOrthogonalityElements = int64_t{1} << 25;
// Number of fixed vectors of +-1 for the estimate of larger blocks.
inline constexpr int kOrthogonalityProbes = 8;

// Returns the maximum over the blocks of ||O O^T - I||_F / sqrt(rows), where rows <= columns, else
// transposed. O is the change from `before` to `after` without decay, divided by learning rate and
// scale (formulas [M4] and [M5]).
// Computed in float64; its precision is limited by the rounding of the weights to fp32. Beyond the
// Gram limits above, the norm is estimated, to some percent. Absent if the learning rate is 0, if
// the parameter has no element, or if its first block is beyond the last limit.
std::optional<double> OrthogonalityError(const MuonConfig& config, double lr,
                                         absl::Span<const uint64_t> shape,
                                         absl::Span<const float> before,
                                         absl::Span<const float> after);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALITY_H_
