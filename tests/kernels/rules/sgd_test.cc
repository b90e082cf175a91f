#include "kernels/rules/sgd.h"

#include <gtest/gtest.h>

#include "kernels/optimizer_rule.h"

namespace kaon::kernels {
namespace {

// The weight after one element's update from 8, with a learning rate of 1/4.
float Step(const SgdConfig& config, int64_t t, float grad, float& buffer) {
  float state[1] = {buffer};
  const float param = Sgd::Element(Sgd::Prepare(config, 0.25, 1.0, t), grad, 8.0f, state);
  buffer = state[0];
  return param;
}

TEST(SgdTest, WithoutMomentumItStepsAlongTheGradient) {
  float none = 0;
  EXPECT_EQ(Step({0, 0.5}, 7, 2.0f, none), 7.5f);
}

// The first gradient is copied into the buffer; later ones are dampened ([G1]).
TEST(SgdTest, TheFirstGradientIsTheBufferAndLaterOnesAreDampened) {
  float buffer = 0;
  EXPECT_EQ(Step({0.5, 0.75}, 1, 2.0f, buffer), 7.5f);
  EXPECT_EQ(buffer, 2.0f);
  EXPECT_EQ(Step({0.5, 0.75}, 2, 2.0f, buffer), 8.0f - 0.25f * 1.5f);
  EXPECT_EQ(buffer, 1.5f);
}

TEST(SgdTest, NesterovLooksAheadOfTheUpdatedBuffer) {
  float buffer = 0;
  EXPECT_EQ(Step({0.5, 0, true}, 1, 2.0f, buffer), 8.0f - 0.25f * 3.0f);
  EXPECT_EQ(Step({0.5, 0, true}, 2, 2.0f, buffer), 8.0f - 0.25f * (2.0f + 0.5f * 3.0f));
  EXPECT_EQ(buffer, 3.0f);
}

// [W1]: l2 by default; the decay goes through the buffer.
TEST(SgdTest, DecayEntersTheGradient) {
  float buffer = 0;
  EXPECT_EQ(Step({0.5, 0, false, 0.125}, 1, 2.0f, buffer), 8.0f - 0.25f * 3.0f);
  EXPECT_EQ(buffer, 3.0f);
}

}  // namespace
}  // namespace kaon::kernels
