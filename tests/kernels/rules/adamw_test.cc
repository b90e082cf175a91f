#include "kernels/rules/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/optimizer_rule.h"

namespace kaon::kernels {
namespace {

// One update of one element from zero moments.
float FirstStep(const AdamWConfig& config, double lr, float grad, float param) {
  float moments[3] = {0, 0, 0};
  return AdamW::Element(AdamW::Prepare(config, lr, 1.0, 1), grad, param, moments);
}

TEST(AdamWTest, FirstStepHasTheSizeOfTheRateWhateverTheGradient) {
  for (const float grad : {1e-3f, 1.0f, 1e6f}) {
    EXPECT_NEAR(FirstStep(AdamWConfig{}, 1e-2, grad, 0.0f), -1e-2, 2e-7) << grad;
    EXPECT_NEAR(FirstStep(AdamWConfig{}, 1e-2, -grad, 0.0f), 1e-2, 2e-7) << grad;
  }
}

// eps is added outside the root and the correction ([A2]); inside the root the result would be
// 0.0099995.
TEST(AdamWTest, EpsIsAddedAfterTheRoot) {
  AdamWConfig config;
  config.eps = 1e-2;
  EXPECT_NEAR(FirstStep(config, 1.0, 1e-2f, 0.0f), -0.5, 1e-6);
}

// [A3]: decay of the old weight, before the update.
TEST(AdamWTest, DecayIsDecoupled) {
  AdamWConfig config;
  config.weight_decay = 0.5;
  EXPECT_NEAR(FirstStep(config, 0.1, 3.0f, 2.0f), 2.0 - 0.1 * 0.5 * 2.0 - 0.1, 1e-6);
}

TEST(AdamWTest, ASmallDecayIsNotRoundedAway) {
  AdamWConfig config;
  config.weight_decay = 1e-2;
  // lr wd = 2e-7: as a factor in fp32 it would decay every weight by 1.8e-7.
  float sum = 0;
  for (int i = 0; i < 64; ++i) sum += 64.0f + i - FirstStep(config, 2e-5, 0.0f, 64.0f + i);
  EXPECT_NEAR(sum / (64 * 95.5 * 2e-7), 1.0, 0.05);
}

// The corrections are computed from t in double and vanish for large t ([A1]).
TEST(AdamWTest, BiasCorrectionsFollowTheCounter) {
  const AdamW::Scalars first = AdamW::Prepare(AdamWConfig{}, 1.0, 1.0, 1);
  EXPECT_FLOAT_EQ(first.step_size, 10.0f);
  EXPECT_FLOAT_EQ(first.inverse_sqrt_c2, static_cast<float>(1 / std::sqrt(0.05)));
  const AdamW::Scalars late = AdamW::Prepare(AdamWConfig{}, 1.0, 1.0, int64_t{1} << 40);
  EXPECT_EQ(late.step_size, 1.0f);
  EXPECT_EQ(late.inverse_sqrt_c2, 1.0f);
}

// [A4]: g^2 underflows below 1e-23, so the step is m_hat / eps.
TEST(AdamWTest, GradientsWhoseSquareUnderflowsAreDividedByEps) {
  EXPECT_NEAR(FirstStep(AdamWConfig{}, 1.0, 1e-25f, 0.0f), -1e-17, 1e-22);
}

// Without bias correction the counter of steps does not matter ([A5]).
TEST(AdamWTest, WithoutBiasCorrectionTheCounterDoesNotMatter) {
  AdamWConfig config;
  config.bias_correction = false;
  for (const int64_t t : {int64_t{1}, int64_t{1} << 40}) {
    const AdamW::Scalars s = AdamW::Prepare(config, 1.0, 1.0, t);
    EXPECT_EQ(s.step_size, 1.0f);
    EXPECT_EQ(s.inverse_sqrt_c2, 1.0f);
  }
}

// [A4]: the largest of the raw moments divides, however small the newest.
TEST(AdamWTest, AmsgradNeverForgetsALargeGradient) {
  AdamWConfig config;
  config.amsgrad = true;
  config.beta2 = 0;
  config.bias_correction = false;
  const AdamW::Scalars s = AdamW::Prepare(config, 1.0, 1.0, 1);
  float moments[3] = {0, 0, 0};
  EXPECT_NEAR(AdamW::Element(s, 4.0f, 0.0f, moments), -0.4 / 4, 1e-6);
  EXPECT_EQ(moments[1], 16.0f);
  EXPECT_EQ(moments[2], 16.0f);
  // m = 0.9 * 0.4 + 0.1 * 0.5, over the root of 16 and not of 0.25.
  EXPECT_NEAR(AdamW::Element(s, 0.5f, 0.0f, moments), -0.41 / 4, 1e-6);
  EXPECT_EQ(moments[1], 0.25f);
  EXPECT_EQ(moments[2], 16.0f);
}

}  // namespace
}  // namespace kaon::kernels
