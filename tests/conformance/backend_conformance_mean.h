// Conformance of a backend's gradient path: folding, the mean, the norm.
// Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/digest.h"
#include "kernels/grad_norm.h"
#include "tests/conformance/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_optimizer.h"
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

// P11: the gradient's, neither weighted nor the sum's. Small and large ones would leave fp32.
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

TEST_P(BackendConformanceTest, MeanIsTheWeightedMeanUnscaled) {
  const std::vector<std::vector<float>> gradients = {reference::GaussianVector(333, 3),
                                                     reference::GaussianVector(333, 4),
                                                     reference::GaussianVector(333, 5)};
  const std::vector<double> weights = {96, 32, 7};
  std::vector<float> acc(333);
  std::vector<std::vector<double>> wide;
  for (size_t worker = 0; worker < gradients.size(); ++worker) {
    FoldVector(DType::kFloat32, gradients[worker], static_cast<float>(weights[worker]), worker == 0,
               acc);
    wide.push_back(reference::Widened(gradients[worker]));
  }
  backend_->FinishMean({.total_weight = 135.0f, .loss_scale = 1024.0f}, absl::MakeSpan(acc));
  EXPECT_LE(reference::RelativeError(acc, reference::WeightedMean(wide, weights, 1024)), 1e-6);
}

TEST_P(BackendConformanceTest, MeanOverOneLeavesEveryBit) {
  std::vector<float> acc = reference::GaussianVector(100, 6);
  acc[3] = -0.0f;
  acc[4] = 1e-42f;
  const std::vector<float> before = acc;
  backend_->FinishMean({}, absl::MakeSpan(acc));
  EXPECT_TRUE(SameBits(acc, before));
}

TEST_P(BackendConformanceTest, MeanDividesByTheWeightAndThenByTheLossScale) {
  // Sizes around registers, blocks of [C1] and what threads take at a time.
  for (const size_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 65537, 200001}) {
    const std::vector<float> sum = reference::GaussianVector(n, 7);
    std::vector<float> mean = sum;
    backend_->FinishMean({.total_weight = 3.7f, .loss_scale = 1000.3f}, absl::MakeSpan(mean));
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(mean[i], (sum[i] / 3.7f) / 1000.3f) << n << " " << i;
  }
}

// [C1], of what was written and not of the sum.
TEST_P(BackendConformanceTest, MeanComesWithItsFixedOrderNormAndDigest) {
  for (const size_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 65537, 200001}) {
    std::vector<float> mean = reference::GaussianVector(n, 8);
    for (size_t i = 0; i < n; i += 5) mean[i] = i % 2 == 0 ? 0.0f : -0.0f;
    const MeanFacts facts = backend_->FinishMean(
        {.total_weight = 3.7f, .loss_scale = 2.0f, .parameter_id = 5}, absl::MakeSpan(mean));
    const GradNorm expected = ComputeGradNorm(mean);
    EXPECT_EQ(facts.norm.sum_squares, expected.sum_squares) << n;
    EXPECT_EQ(facts.norm.absolute_max, expected.absolute_max) << n;
    EXPECT_EQ(facts.norm.num_elements, n);
    EXPECT_EQ(facts.norm.num_zeros, (n + 4) / 5) << n;
    EXPECT_EQ(facts.norm.num_non_finite, 0) << n;
    EXPECT_EQ(facts.digest, TensorDigest(5, kGradientSlot, mean)) << n;
    // The one of a single element is zero.
    if (n <= 1) continue;
    EXPECT_NEAR(std::sqrt(facts.norm.sum_squares) / reference::Norm(reference::Widened(mean)), 1.0,
                1e-12);
  }
}

// [T3]; an infinity may be born in the division. [T5]: also when nobody reads the sum.
TEST_P(BackendConformanceTest, MeanCountsWhatIsNotFinite) {
  for (const bool takes_sum : {true, false}) {
    std::vector<float> mean(70000, 0.5f);
    mean[17] = 0;
    mean[5000] = std::nanf("");
    mean[60001] = HUGE_VALF;
    mean[69999] = -8;
    const MeanScalars scalars = {.total_weight = 0.5f, .takes_sum = takes_sum};
    const MeanFacts facts = backend_->FinishMean(scalars, absl::MakeSpan(mean));
    EXPECT_EQ(facts.norm.num_elements, 70000);
    EXPECT_EQ(facts.norm.num_zeros, 1);
    EXPECT_EQ(facts.norm.num_non_finite, 2);
    EXPECT_EQ(facts.norm.absolute_max, HUGE_VAL);
    EXPECT_EQ(std::isfinite(facts.norm.sum_squares), !takes_sum);
    if (!takes_sum) {
      EXPECT_EQ(facts.norm.sum_squares, 0);
    }
    mean.assign(70000, 3e38f);
    EXPECT_EQ(backend_->FinishMean(scalars, absl::MakeSpan(mean)).norm.num_non_finite, 70000);
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_
