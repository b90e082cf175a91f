#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include "kernels/gemm/reference_gemm.h"
#include "tests/kernels/gemm/gemm_cases.h"
#include "tests/kernels/gemm/stored_product.h"

namespace kaon::kernels {
namespace {

TEST(GemmTest, StoredMatricesAreRowMajorAndRounded) {
  ReferenceGemm gemm;
  const std::vector<float> x = reference::GaussianVector(40 * 70, 1);
  const StoredMatrix stored = StoredIn(gemm, 40, 70, x);
  EXPECT_EQ(stored.num_elements(), 40 * 70);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(stored.data()) % 64, 0u);
  EXPECT_EQ(gemm.StoredIndex(70, 3, 5), 3 * 70 + 5);
  std::vector<float> rounded = x;
  for (float& value : rounded) value = RoundTo(DType::kBFloat16, value);
  EXPECT_EQ(LoadedFrom(gemm, 40, 70, stored), rounded);
}

TEST(GemmTest, StoredProductsAreRoundedOnce) {
  ReferenceGemm gemm;
  for (const GemmCase& c : GemmCases()) ExpectRoundedOnce(c, StoredProduct(gemm, c));
}

}  // namespace
}  // namespace kaon::kernels
