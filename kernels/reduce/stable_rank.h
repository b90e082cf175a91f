// Estimates the stable rank of a matrix, which tells how many directions it really uses. For people
// who watch a run; no step depends on it. Pure function over a borrowed buffer; any thread.
#ifndef KAON_KERNELS_REDUCE_STABLE_RANK_H_
#define KAON_KERNELS_REDUCE_STABLE_RANK_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace kaon::kernels {

// Multiplications of the matrix, and as many of its transpose, that one estimate makes.
inline constexpr int kPowerIterations = 6;

// Returns ||W||_F^2 / s^2 of a row-major matrix. Here s estimates the spectral norm from below, by
// power iterations on W^T W from a fixed vector of +-1. So the result is 1 at least, and too large
// by some percent. It is by about a seventh if very many singular values are close to the largest.
// Absent for a matrix that is empty or not finite, and for one that the vector is orthogonal to, as
// it is to zero.
std::optional<double> StableRank(absl::Span<const float> values, int64_t rows, int64_t cols);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_STABLE_RANK_H_
