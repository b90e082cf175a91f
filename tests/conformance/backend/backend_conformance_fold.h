// Conformance of a backend's gradient path: folding.
// Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

TEST_P(BackendConformanceTest, FoldsInEveryDTypeAsOneFusedMultiplyAdd) {
  const std::vector<float> x = reference::GaussianVector(1003, 1);
  const std::vector<float> y = reference::GaussianVector(1003, 2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::vector<float> acc(x.size(), 7.0f);
    EXPECT_EQ(FoldVector(dtype, x, 0.3f, true, acc), -1);
    EXPECT_EQ(FoldVector(dtype, y, 1.7f, false, acc), -1);
    for (size_t i = 0; i < acc.size(); ++i) {
      ASSERT_EQ(acc[i], std::fma(1.7f, RoundTo(dtype, y[i]), 0.3f * RoundTo(dtype, x[i]))) << i;
    }
  }
}

TEST_P(BackendConformanceTest, FoldNamesTheFirstNonFiniteElement) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      std::vector<float> x(517, 1.0f);
      x[300] = bad;
      x[401] = bad;
      std::vector<float> acc(x.size());
      EXPECT_EQ(FoldVector(dtype, x, 0.0f, true, acc), 300);
      EXPECT_EQ(FoldVector(dtype, x, 2.0f, false, acc), 300);
      EXPECT_EQ(acc[299], 2.0f);
    }
  }
}

TEST_P(BackendConformanceTest, FoldReportsOnlyTheGradientNotTheAccumulator) {
  std::vector<float> acc(9, HUGE_VALF);
  EXPECT_EQ(FoldVector(DType::kFloat32, std::vector<float>(9, 1.0f), 1.0f, false, acc), -1);
}

TEST_P(BackendConformanceTest, FoldOfNothingIsNothing) {
  std::vector<float> acc;
  EXPECT_EQ(FoldVector(DType::kBFloat16, {}, 1.0f, true, acc), -1);
  EXPECT_EQ(FoldedSquares(DType::kBFloat16, {}), 0);
}

// Folding measures the norm of the worker's own gradient (P11), before its weight and not of the
// sum. The squares of the small and large values are outside the range of fp32.
TEST_P(BackendConformanceTest, FoldTakesTheSquaresOfGradientsOfAnySize) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const double size : {1e-42, 1e-30, 1e-18, 1e-3, 1.0, 3e4, 1e19, 1e34}) {
      std::vector<float> x = reference::GaussianVector(3 * kFoldBlockElements + 517, 8);
      for (float& g : x) g = RoundTo(dtype, static_cast<float>(g * size / 4));
      double expected = 0;
      for (const float g : x) expected += static_cast<double>(g) * g;
      if (!std::isfinite(expected)) continue;
      for (const bool first : {true, false}) {
        EXPECT_NEAR(FoldedSquares(dtype, x, first), expected, 1e-5 * expected)
            << NameOf(dtype) << " of size " << size;
      }
    }
  }
}

TEST_P(BackendConformanceTest, FoldTakesTheSquaresOfFewElementsAmongZeros) {
  for (const float value : {1e-30f, 1.0f, 1e30f}) {
    std::vector<float> x(2 * kFoldBlockElements);
    EXPECT_EQ(FoldedSquares(DType::kFloat32, x), 0);
    x[kFoldBlockElements + 300] = value;
    const double expected = static_cast<double>(value) * value;
    EXPECT_NEAR(FoldedSquares(DType::kFloat32, x), expected, 1e-5 * expected);
  }
}

TEST_P(BackendConformanceTest, SquaresFoldedInWholeBlocksAreThoseOfAllAtOnce) {
  const std::vector<float> x = reference::GaussianVector(4 * kFoldBlockElements + 100, 9);
  const std::vector<std::byte> bytes = Encode(DType::kFloat32, x);
  std::vector<float> acc(x.size());
  double sum_squares = 0;
  for (size_t begin = 0; begin < x.size(); begin += 2 * kFoldBlockElements) {
    const size_t count = std::min<size_t>(2 * kFoldBlockElements, x.size() - begin);
    backend_->Fold(DType::kFloat32, bytes.data() + 1 + 4 * begin, 1.0f, true,
                   absl::MakeSpan(acc).subspan(begin, count), &sum_squares);
  }
  EXPECT_EQ(sum_squares, FoldedSquares(DType::kFloat32, x));
}

TEST_P(BackendConformanceTest, SquaresOfWhatIsNotFiniteAreNotFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      std::vector<float> x(517, 1.0f);
      x[516] = bad;
      EXPECT_FALSE(std::isfinite(FoldedSquares(dtype, x)));
    }
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_FOLD_H_
