#include "kernels/orthogonalize/newton_schulz.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/types/optional.h"
#include "kernels/grad_norm.h"
#include "kernels/mutation.h"
#include "kernels/orthogonalize/coefficients.h"
#include "kernels/orthogonalize/iteration.h"
#include "kernels/orthogonalize/matrix_storage.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

struct DivideBy {
  KAON_HOST_DEVICE static void Run(float* x, float divisor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] /= divisor;
  }
};

// `to` (cols, rows) <- the transpose of `from` (rows, cols); by square tiles, so that both sides
// stay in cache.
void Transpose(const float* from, int64_t rows, int64_t cols, float* to) {
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < rows; i0 += kTile) {
    for (int64_t j0 = 0; j0 < cols; j0 += kTile) {
      for (int64_t i = i0; i < std::min(rows, i0 + kTile); ++i) {
        for (int64_t j = j0; j < std::min(cols, j0 + kTile); ++j) {
          to[j * rows + i] = from[i * cols + j];
        }
      }
    }
  }
}

// [N5]. False for a zero matrix.
bool Normalize(const NewtonSchulzConfig& config, double safety_factor, absl::Span<float> x) {
  const int64_t n = static_cast<int64_t>(x.size());
  GradNorm sums = ComputeGradNorm(x);
  if (sums.absolute_max == 0) return false;
  if (config.norm_mode == NormMode::kScaleInvariant) {
    RunVectorized<DivideBy>(x.data(), static_cast<float>(sums.absolute_max), n);
    sums = ComputeGradNorm(x);
  }
  if (Mutated(Mutation::kSafetyFactorMissing)) safety_factor = 1;
  float norm = static_cast<float>(safety_factor * std::sqrt(sums.sum_squares));
  const float eps = static_cast<float>(config.norm_eps);
  if (config.norm_mode == NormMode::kAddEps) norm += eps;
  if (config.norm_mode == NormMode::kClampEps) norm = std::max(norm, eps);
  RunVectorized<DivideBy>(x.data(), Mutated(Mutation::kNotNormalised) ? 1.0f : norm, n);
  return true;
}

}  // namespace

void NewtonSchulz(const NewtonSchulzConfig& config, MatrixShape shape, absl::Span<const float> in,
                  absl::Span<float> out, Gemm& gemm) {
  CHECK(static_cast<int64_t>(in.size()) == shape.rows * shape.cols && in.size() == out.size())
      << in.size() << " in, " << out.size() << " out, shape " << shape.rows << "x" << shape.cols;
  if (in.empty()) return;
  // [N4]: always on the wide form, and normalised in it, so that a transposed input gives the same
  // bits transposed.
  const bool transposed = shape.rows > shape.cols;
  const int64_t r = std::min(shape.rows, shape.cols);
  const int64_t c = std::max(shape.rows, shape.cols);
  std::vector<float> x(in.size());
  if (transposed) {
    Transpose(in.data(), shape.rows, shape.cols, x.data());
  } else {
    std::copy(in.begin(), in.end(), x.begin());
  }
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  CHECK(set) << "coefficient set " << static_cast<int>(config.coefficients) << " has no row";
  if (!Normalize(config, set->safety_factor, absl::MakeSpan(x))) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  const Iteration iteration{config, *set, r, c, gemm};
  switch (config.dtype) {
    case NsDType::kFloat32:
      Iterate<Float32Storage>(iteration, x);
      break;
    case NsDType::kBFloat16:
      Iterate<BFloat16Storage>(iteration, x);
      break;
    case NsDType::kFloat16:
      Iterate<Float16Storage>(iteration, x);
      break;
  }
  if (transposed && !Mutated(Mutation::kNotTransposedBack)) {
    Transpose(x.data(), r, c, out.data());
  } else {
    std::copy(x.begin(), x.end(), out.begin());
  }
}

}  // namespace kaon::kernels
