// Conformance of a backend's gradient path: the mean and its norm.
// Part of the suite of backend_conformance.h; used by tests only.
#ifndef KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEAN_H_
#define KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEAN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/reduce/digest.h"
#include "kernels/reduce/grad_norm.h"
#include "tests/conformance/backend/backend_conformance_fixture.h"
#include "tests/kernels/reference/float64_optimizer.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {

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
  FinishMean({.total_weight = 135.0f, .loss_scale = 1024.0f}, acc);
  EXPECT_LE(reference::RelativeError(acc, reference::WeightedMean(wide, weights, 1024)), 1e-6);
}

TEST_P(BackendConformanceTest, MeanOverOneLeavesEveryBit) {
  std::vector<float> acc = reference::GaussianVector(100, 6);
  acc[3] = -0.0f;
  acc[4] = 1e-42f;
  const std::vector<float> before = acc;
  FinishMean({}, acc);
  EXPECT_TRUE(SameBits(acc, before));
}

TEST_P(BackendConformanceTest, MeanDividesByTheWeightAndThenByTheLossScale) {
  // The sizes are around those of registers, of blocks of [C1] and of the ranges of threads.
  for (const size_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 65537, 200001}) {
    const std::vector<float> sum = reference::GaussianVector(n, 7);
    std::vector<float> mean = sum;
    FinishMean({.total_weight = 3.7f, .loss_scale = 1000.3f}, mean);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(mean[i], (sum[i] / 3.7f) / 1000.3f) << n << " " << i;
  }
}

// A power of two needs no division. A result that is not a normal number must still be rounded as a
// division rounds it.
TEST_P(BackendConformanceTest, MeanOverPowersOfTwoHasTheBitsOfDivisions) {
  std::vector<float> sum = reference::GaussianVector(5000, 7);
  for (size_t i = 0; i < sum.size(); i += 2) {
    sum[i] = std::ldexp(sum[i], static_cast<int>(i % 256) - 140);
  }
  sum[1] = -0.0f;
  sum[3] = HUGE_VALF;
  sum[5] = 3e38f;
  sum[7] = std::nanf("");
  // The reciprocal of the last divisor overflows.
  const std::vector<std::pair<float, float>> divisors = {
      {4096, 65536}, {8, 3.7f},      {3.7f, 0.25f},         {0x1p-30f, 1},
      {0x1p127f, 2}, {0x1p-127f, 1}, {0x1p119f, 0x1p-100f}, {0x1p-130f, 1}};
  for (const auto& [weight, scale] : divisors) {
    std::vector<float> mean = sum;
    FinishMean({.total_weight = weight, .loss_scale = scale}, mean);
    // `volatile` hides the divisors from the compiler, which might make the same optimization.
    const volatile float by[] = {weight, scale};
    std::vector<float> expected = sum;
    for (float& x : expected) x = (x / by[0]) / by[1];
    EXPECT_TRUE(SameBits(mean, expected)) << weight << " " << scale;
  }
}

// The norm is summed in the fixed order of [C1], over the mean that was written and not over the
// sum.
TEST_P(BackendConformanceTest, MeanComesWithItsFixedOrderNormAndDigest) {
  for (const size_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 65537, 200001}) {
    std::vector<float> mean = reference::GaussianVector(n, 8);
    for (size_t i = 0; i < n; i += 5) mean[i] = i % 2 == 0 ? 0.0f : -0.0f;
    const MeanFacts facts =
        FinishMean({.total_weight = 3.7f, .loss_scale = 2.0f, .parameter_id = 5}, mean);
    const GradNorm expected = ComputeGradNorm(mean);
    EXPECT_EQ(facts.norm.sum_squares, expected.sum_squares) << n;
    EXPECT_EQ(facts.norm.absolute_max, expected.absolute_max) << n;
    EXPECT_EQ(facts.norm.num_elements, n);
    EXPECT_EQ(facts.norm.num_zeros, (n + 4) / 5) << n;
    EXPECT_EQ(facts.norm.num_non_finite, 0) << n;
    EXPECT_EQ(facts.digest, TensorDigest(5, kGradientSlot, mean)) << n;
    // The only element is zero, and so is its norm.
    if (n <= 1) continue;
    EXPECT_NEAR(std::sqrt(facts.norm.sum_squares) / reference::Norm(reference::Widened(mean)), 1.0,
                1e-12);
  }
}

// The mean counts values that are not finite ([T3]); the division itself may produce an infinity.
// It counts them even if nobody reads the sum ([T5]).
TEST_P(BackendConformanceTest, MeanCountsWhatIsNotFinite) {
  for (const bool takes_sum : {true, false}) {
    std::vector<float> mean(70000, 0.5f);
    mean[17] = 0;
    mean[5000] = std::nanf("");
    mean[60001] = HUGE_VALF;
    mean[69999] = -8;
    const MeanScalars scalars = {.total_weight = 0.5f, .takes_sum = takes_sum};
    const MeanFacts facts = FinishMean(scalars, mean);
    EXPECT_EQ(facts.norm.num_elements, 70000);
    EXPECT_EQ(facts.norm.num_zeros, 1);
    EXPECT_EQ(facts.norm.num_non_finite, 2);
    EXPECT_EQ(facts.norm.absolute_max, HUGE_VAL);
    EXPECT_EQ(std::isfinite(facts.norm.sum_squares), !takes_sum);
    if (!takes_sum) {
      EXPECT_EQ(facts.norm.sum_squares, 0);
    }
    mean.assign(70000, 3e38f);
    EXPECT_EQ(FinishMean(scalars, mean).norm.num_non_finite, 70000);
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_BACKEND_BACKEND_CONFORMANCE_MEAN_H_
