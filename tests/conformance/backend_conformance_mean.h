// Conformance of a backend's gradient path: folding, the mean, the norm.
// Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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
  backend_->FinishMean(135.0f, 1024.0f, absl::MakeSpan(acc));
  EXPECT_LE(reference::RelativeError(acc, reference::WeightedMean(wide, weights, 1024)), 1e-6);
}

TEST_P(BackendConformanceTest, MeanOverOneLeavesEveryBit) {
  std::vector<float> acc = reference::GaussianVector(100, 6);
  acc[3] = -0.0f;
  acc[4] = 1e-42f;
  const std::vector<float> before = acc;
  backend_->FinishMean(1.0f, 1.0f, absl::MakeSpan(acc));
  EXPECT_TRUE(SameBits(acc, before));
}

TEST_P(BackendConformanceTest, NormIsTheSharedFixedOrderNorm) {
  const std::vector<float> x = reference::GaussianVector(9001, 7);
  const GradNorm norm = backend_->ComputeNorm(x);
  EXPECT_EQ(norm.sum_squares, ComputeGradNorm(x).sum_squares);
  EXPECT_NEAR(std::sqrt(norm.sum_squares) / reference::Norm(reference::Widened(x)), 1.0, 1e-12);
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_MEAN_H_
