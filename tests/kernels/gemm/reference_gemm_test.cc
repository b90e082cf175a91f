#include "kernels/gemm/reference_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/gemm/gemm_cases.h"

namespace kaon::kernels {
namespace {

TEST(ReferenceGemmTest, EqualsTheFloat64ProductInBothStorages) {
  ReferenceGemm gemm;
  for (const GemmCase& c : GemmCases()) {
    c.ExpectClose(Product(gemm, c));
    c.ExpectClose(BFloat16Product(gemm, c));
  }
}

// The order of summation is part of the definition: blocks of 256, fused, ascending.
TEST(ReferenceGemmTest, SumsInTheDefinedOrder) {
  ReferenceGemm gemm;
  for (const GemmCase& c : GemmCases()) {
    if (c.product.transpose_b || c.product.beta != 0) continue;
    const std::vector<float> result = Product(gemm, c);
    const MatrixProduct& p = c.product;
    for (int64_t i = 0; i < p.rows; ++i) {
      float total = 0;
      for (int64_t begin = 0; begin < p.inner; begin += 256) {
        float sum = 0;
        for (int64_t k = begin; k < std::min(p.inner, begin + 256); ++k) {
          sum = std::fma(c.a[i * p.inner + k], c.b[k * p.cols], sum);
        }
        total += sum;
      }
      ASSERT_EQ(result[i * p.cols], p.alpha * total) << i;
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
