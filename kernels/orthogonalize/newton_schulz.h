// Orthogonalization of a matrix by the Newton-Schulz iteration (numerics.md, rules [N1]-[N8]). It
// maps every singular value to about 1, whatever the scale of the input. Pure function over
// borrowed buffers; any thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
#define KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/newton_schulz_config.h"
#include "kernels/reduce/norm_order.h"

namespace kaon::kernels {

struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// Norms of a matrix for its normalisation (rule [N5]).
struct MatrixNorm {
  double sum_squares = 0;
  double absolute_max = 0;

  // Adds the norm of the data that follows in memory. Sums are computed over pieces of kNormPiece
  // elements and added in order.
  void Add(const MatrixNorm& piece);
};

MatrixNorm NormOfPiece(absl::Span<const float> piece);

struct OrthogonalizedMatrix {
  MatrixShape shape;
  // The matrix, row-major and finite. Its contents are lost: the iteration uses the memory for some
  // of its matrices. The sink may write to it.
  absl::Span<float> in;
  // Norm of `in`, if the caller computed it while the data was cached. Otherwise a separate pass
  // computes it.
  absl::optional<MatrixNorm> norm;
};

// sink(first element, values) receives whole rows of the result, row-major like the input. It is
// called once for every row, on any thread of the pool, and concurrently.
using OrthogonalizedRows = absl::FunctionRef<void(int64_t first, absl::Span<const float> values)>;

// Orthogonalizes a matrix. A zero matrix gives exactly zero; an empty one causes no call. `config`
// has passed ValidateNewtonSchulz. For a square matrix the gram form is the standard form.
void NewtonSchulz(const NewtonSchulzConfig& config, const OrthogonalizedMatrix& matrix, Gemm& gemm,
                  ThreadPool& pool, OrthogonalizedRows sink);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
