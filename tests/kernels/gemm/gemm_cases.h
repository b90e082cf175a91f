// Products that every Gemm is checked with: shapes around tile sizes, both layouts of B, alpha and
// beta, and the exact answer in float64. Used by tests only; pure functions.
#ifndef KAON_TESTS_KERNELS_GEMM_GEMM_CASES_H_
#define KAON_TESTS_KERNELS_GEMM_GEMM_CASES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

struct GemmCase {
  MatrixProduct product;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;

  std::vector<double> Expected() const {
    const reference::Matrix a64 = reference::AsMatrix(a, product.rows, product.inner);
    const reference::Matrix b64 =
        product.transpose_b
            ? reference::Matrix(reference::AsMatrix(b, product.cols, product.inner).transpose())
            : reference::AsMatrix(b, product.inner, product.cols);
    reference::Matrix c64 = product.alpha * a64 * b64;
    if (product.beta != 0) {
      c64 += product.beta * reference::AsMatrix(c, product.rows, product.cols);
    }
    return {c64.data(), c64.data() + c64.size()};
  }

  void ExpectClose(const std::vector<float>& result) const {
    EXPECT_LE(reference::RelativeError(result, Expected()), 1e-6)
        << product.rows << "x" << product.cols << " over " << product.inner << " transpose_b "
        << product.transpose_b << " alpha " << product.alpha << " beta " << product.beta;
  }
};

// Operands are bf16 values, so both storages have the same exact answer. With beta = 0, C holds
// NaN.
inline std::vector<GemmCase> GemmCases() {
  std::vector<GemmCase> cases;
  const int extents[][3] = {{1, 1, 1},    {1, 33, 5},    {4, 32, 256}, {5, 31, 257},
                            {64, 64, 64}, {37, 65, 600}, {130, 3, 17}, {3, 100, 1}};
  uint32_t seed = 1;
  for (const auto& [rows, cols, inner] : extents) {
    for (const bool transpose_b : {false, true}) {
      for (const float beta : {0.0f, -1.75f}) {
        GemmCase c;
        c.product = {rows, cols, inner, transpose_b, beta == 0 ? 1.0f : 2.5f, beta};
        c.a = reference::GaussianVector(rows * inner, ++seed);
        c.b = reference::GaussianVector(inner * cols, ++seed);
        for (float& x : c.a) x = RoundTo(DType::kBFloat16, x);
        for (float& x : c.b) x = RoundTo(DType::kBFloat16, x);
        c.c = beta == 0 ? std::vector<float>(rows * cols, std::nanf(""))
                        : reference::GaussianVector(rows * cols, ++seed);
        cases.push_back(c);
      }
    }
  }
  return cases;
}

inline GemmCase CaseOf(const MatrixProduct& product) {
  GemmCase c;
  c.product = product;
  c.a = reference::GaussianVector(product.rows * product.inner, 1);
  c.b = reference::GaussianVector(product.inner * product.cols, 2);
  for (float& x : c.a) x = RoundTo(DType::kBFloat16, x);
  for (float& x : c.b) x = RoundTo(DType::kBFloat16, x);
  c.c = reference::GaussianVector(product.rows * product.cols, 3);
  return c;
}

// Returns X X^T, or the square of a symmetric matrix, with a symmetric C.
inline GemmCase SymmetricCase(int64_t n, int64_t inner, bool square, float beta) {
  GemmCase c = CaseOf({.rows = n,
                       .cols = n,
                       .inner = inner,
                       .transpose_b = !square,
                       .alpha = 2.5f,
                       .beta = beta,
                       .symmetric = true});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      c.c[i * n + j] = c.c[j * n + i];
      if (square) c.a[i * n + j] = c.a[j * n + i];
    }
  }
  c.b = c.a;
  if (beta == 0) c.c.assign(n * n, std::nanf(""));
  return c;
}

inline std::vector<float> Product(Gemm& gemm, const GemmCase& c) {
  std::vector<float> result = c.c;
  gemm.Multiply(c.product, c.a.data(), c.b.data(), result.data());
  return result;
}

inline std::vector<float> BFloat16Product(Gemm& gemm, const GemmCase& c) {
  std::vector<uint16_t> a(c.a.size());
  std::vector<uint16_t> b(c.b.size());
  FromFloat(DType::kBFloat16, c.a, reinterpret_cast<std::byte*>(a.data()));
  FromFloat(DType::kBFloat16, c.b, reinterpret_cast<std::byte*>(b.data()));
  std::vector<float> result = c.c;
  gemm.MultiplyBFloat16(c.product, a.data(), b.data(), result.data());
  return result;
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_GEMM_GEMM_CASES_H_
