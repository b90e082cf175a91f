// Orthogonalization of a matrix by the Newton-Schulz iteration ([N1]-[N8]): every singular value
// goes to about 1, whatever the scale of the input. Pure function over borrowed buffers; any
// thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
#define KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/gemm.h"
#include "kernels/newton_schulz_config.h"

namespace kaon::kernels {

struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// out <- the orthogonalized `in`, both row-major of `shape`; out may be in. Zero gives exactly
// zero, an empty matrix is left alone. `in` is finite ([T3]); `config` passed ValidateNewtonSchulz.
// The gram form of a square matrix is the standard form.
void NewtonSchulz(const NewtonSchulzConfig& config, MatrixShape shape, absl::Span<const float> in,
                  absl::Span<float> out, Gemm& gemm);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_NEWTON_SCHULZ_H_
