#include "kernels/orthogonalize/newton_schulz.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/grad_norm.h"
#include "kernels/orthogonalize/coefficients.h"
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

// [N5]: x <- x / max|x|, then divided by its Frobenius norm. No eps: the result is the same at any
// scale. False for a zero matrix.
bool Normalize(absl::Span<float> x) {
  const int64_t n = static_cast<int64_t>(x.size());
  const float largest = static_cast<float>(ComputeGradNorm(x).absolute_max);
  if (largest == 0) return false;
  RunVectorized<DivideBy>(x.data(), largest, n);
  const float norm = static_cast<float>(std::sqrt(ComputeGradNorm(x).sum_squares));
  RunVectorized<DivideBy>(x.data(), norm, n);
  return true;
}

// [N1] with fp32 storage: X (r, c) in place.
void IterateFloat32(const NewtonSchulzConfig& config, int64_t r, int64_t c, std::vector<float>& x,
                    Gemm& gemm) {
  std::vector<float> next(x.size());
  std::vector<float> gram(r * r);
  std::vector<float> polynomial(r * r);
  for (int step = 0; step < config.steps; ++step) {
    const NewtonSchulzTriple t = NewtonSchulzCoefficients(config.coefficients, step);
    gemm.Multiply({.rows = r, .cols = r, .inner = c, .transpose_b = true}, x.data(), x.data(),
                  gram.data());
    polynomial = gram;
    gemm.Multiply({.rows = r, .cols = r, .inner = r, .alpha = t.c2, .beta = t.b}, gram.data(),
                  gram.data(), polynomial.data());
    next = x;
    gemm.Multiply({.rows = r, .cols = c, .inner = r, .beta = t.a}, polynomial.data(), x.data(),
                  next.data());
    std::swap(x, next);
  }
}

void RoundAll(const std::vector<float>& from, std::vector<uint16_t>& to) {
  FromFloat(DType::kBFloat16, from, reinterpret_cast<std::byte*>(to.data()));
}

void WidenAll(const std::vector<uint16_t>& from, std::vector<float>& to) {
  ToFloat(DType::kBFloat16, reinterpret_cast<const std::byte*>(from.data()), absl::MakeSpan(to));
}

// [N1] with bf16 storage ([N6]): A, B and X are rounded when stored, every sum is fp32. X (r, c) in
// place, normalised before its first rounding.
void IterateBFloat16(const NewtonSchulzConfig& config, int64_t r, int64_t c, std::vector<float>& x,
                     Gemm& gemm) {
  std::vector<uint16_t> stored(x.size());
  std::vector<uint16_t> gram(r * r);
  std::vector<uint16_t> polynomial(r * r);
  std::vector<float> square(r * r);
  RoundAll(x, stored);
  for (int step = 0; step < config.steps; ++step) {
    const NewtonSchulzTriple t = NewtonSchulzCoefficients(config.coefficients, step);
    gemm.MultiplyBFloat16({.rows = r, .cols = r, .inner = c, .transpose_b = true}, stored.data(),
                          stored.data(), square.data());
    RoundAll(square, gram);
    WidenAll(gram, square);
    gemm.MultiplyBFloat16({.rows = r, .cols = r, .inner = r, .alpha = t.c2, .beta = t.b},
                          gram.data(), gram.data(), square.data());
    RoundAll(square, polynomial);
    WidenAll(stored, x);
    gemm.MultiplyBFloat16({.rows = r, .cols = c, .inner = r, .beta = t.a}, polynomial.data(),
                          stored.data(), x.data());
    RoundAll(x, stored);
  }
  WidenAll(stored, x);
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
  if (!Normalize(absl::MakeSpan(x))) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  switch (config.dtype) {
    case NsDType::kFloat32:
      IterateFloat32(config, r, c, x, gemm);
      break;
    case NsDType::kBFloat16:
    case NsDType::kFloat16:
      IterateBFloat16(config, r, c, x, gemm);
      break;
  }
  if (transposed) {
    Transpose(x.data(), r, c, out.data());
  } else {
    std::copy(x.begin(), x.end(), out.begin());
  }
}

}  // namespace kaon::kernels
