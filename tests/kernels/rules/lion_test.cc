#include "kernels/rules/lion.h"

#include <gtest/gtest.h>

#include "kernels/optimizer_rule.h"

namespace kaon::kernels {
namespace {

// The weight after one element's update from 8, with betas and a learning rate of 1/2 and 1/4.
float Step(float grad, float& momentum) {
  float state[1] = {momentum};
  const LionConfig config{0.5, 0.25};
  const float param = Lion::Element(Lion::Prepare(config, 0.25, 1.0, 1), grad, 8.0f, state);
  momentum = state[0];
  return param;
}

// [G2]: the old momentum in the sign, the other beta in the new one.
TEST(LionTest, TakesTheSignOfMomentumAndGradientBeforeItUpdatesTheMomentum) {
  float momentum = 0;
  EXPECT_EQ(Step(4.0f, momentum), 7.75f);
  EXPECT_EQ(momentum, 3.0f);
  EXPECT_EQ(Step(-2.0f, momentum), 7.75f);
  EXPECT_EQ(momentum, -0.75f);
  EXPECT_EQ(Step(0.5f, momentum), 8.25f);
}

TEST(LionTest, ZeroHasNoSign) {
  float momentum = 2.0f;
  EXPECT_EQ(Step(-2.0f, momentum), 8.0f);
}

}  // namespace
}  // namespace kaon::kernels
