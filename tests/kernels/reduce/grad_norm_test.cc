#include "kernels/reduce/grad_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/reference/float64_optimizer.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

TEST(GradNormTest, EqualsTheReferenceAtEverySizeAroundLanesAndBlocks) {
  for (const int n : {1, 7, 8, 9, 4095, 4096, 4097, 8200, 50001}) {
    const std::vector<float> x = reference::GaussianVector(n, n);
    const double norm = std::sqrt(ComputeGradNorm(x).sum_squares);
    EXPECT_NEAR(norm / reference::Norm(reference::Widened(x)), 1.0, 1e-12) << n;
  }
}

// The order is that of [C1], word for word; any other order of additions gives other bits.
TEST(GradNormTest, AddsInTheSpecifiedOrder) {
  const std::vector<float> x = reference::GaussianVector(3 * 4096 + 77, 5);
  double expected = 0;
  for (size_t begin = 0; begin < x.size(); begin += 4096) {
    double lane[8] = {};
    for (size_t i = begin; i < std::min(x.size(), begin + 4096); ++i) {
      lane[(i - begin) % 8] += static_cast<double>(x[i]) * x[i];
    }
    expected +=
        ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
  EXPECT_EQ(ComputeGradNorm(x).sum_squares, expected);
}

// Edge case 43.
TEST(GradNormTest, NeitherOverflowsNorUnderflows) {
  EXPECT_NEAR(ComputeGradNorm(std::vector<float>(1000, 1e20f)).sum_squares, 1e43, 1e37);
  EXPECT_NEAR(ComputeGradNorm(std::vector<float>(1000, 1e-30f)).sum_squares, 1e-57, 1e-63);
}

TEST(GradNormTest, CountsElementsZerosAndTheMaximum) {
  std::vector<float> x(5000, 0.5f);
  x[0] = 0.0f;
  x[4999] = -0.0f;
  x[4500] = -3.0f;
  const GradNorm norm = ComputeGradNorm(x);
  EXPECT_EQ(norm.num_elements, 5000);
  EXPECT_EQ(norm.num_zeros, 2);
  EXPECT_EQ(norm.num_non_finite, 0);
  EXPECT_EQ(norm.absolute_max, 3.0);
}

TEST(GradNormTest, NonFiniteElementsAreCountedAndSpoilTheSum) {
  std::vector<float> x(5000, 1.0f);
  x[10] = std::nanf("");
  x[20] = -7.0f;
  x[4999] = -std::nanf("");
  const GradNorm with_nan = ComputeGradNorm(x);
  EXPECT_EQ(with_nan.num_non_finite, 2);
  EXPECT_TRUE(std::isnan(with_nan.sum_squares));
  EXPECT_EQ(with_nan.absolute_max, 7.0);
  x[11] = -std::numeric_limits<float>::infinity();
  const GradNorm with_infinity = ComputeGradNorm(x);
  EXPECT_EQ(with_infinity.num_non_finite, 3);
  EXPECT_FALSE(std::isfinite(with_infinity.sum_squares));
  EXPECT_TRUE(std::isinf(with_infinity.absolute_max));
}

TEST(GradNormTest, NothingHasNormZero) {
  const GradNorm norm = ComputeGradNorm({});
  EXPECT_EQ(norm.sum_squares, 0);
  EXPECT_EQ(norm.absolute_max, 0);
  EXPECT_EQ(norm.num_elements, 0);
}

}  // namespace
}  // namespace kaon::kernels
