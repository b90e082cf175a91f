// Orthogonalization of a matrix by the Newton-Schulz iteration ([N1]-[N8]): every singular value
// goes to about 1, whatever the scale of the input. Pure function over borrowed buffers; any
// thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
#define KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/gemm/gemm.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/thread_pool.h"

namespace kaon::kernels {

struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// What [N5] asks of a matrix.
struct MatrixNorm {
  double sum_squares = 0;
  double absolute_max = 0;

  // Of what follows in memory: sums are taken of pieces of kNormPiece elements and added in order.
  void Add(const MatrixNorm& piece);
};

inline constexpr int64_t kNormPiece = 32768;

MatrixNorm NormOfPiece(absl::Span<const float> piece);

struct OrthogonalizedMatrix {
  MatrixShape shape;
  // Row-major, finite ([T3]). Lost: the iteration has some of its matrices there. The sink may
  // write to it.
  absl::Span<float> in;
  // Of `in`, by whoever had it in the cache; taken in a pass of its own if there is none.
  absl::optional<MatrixNorm> norm;
};

// sink(first element, values) for whole rows of the result, row-major as the input: every row once,
// on any thread of the pool and on several at once.
using OrthogonalizedRows = absl::FunctionRef<void(int64_t first, absl::Span<const float> values)>;

// Zero gives exactly zero, an empty matrix no call. `config` passed ValidateNewtonSchulz. The gram
// form of a square matrix is the standard form.
void NewtonSchulz(const NewtonSchulzConfig& config, const OrthogonalizedMatrix& matrix, Gemm& gemm,
                  ThreadPool& pool, OrthogonalizedRows sink);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
