#include "kernels/rules/weight_decay.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/optimizer_rule.h"

namespace kaon::kernels {
namespace {

DecayScalars Prepared(DecayMode mode, double weight_decay, double lr) {
  LionConfig config;
  config.decay_mode = mode;
  config.weight_decay = weight_decay;
  return PrepareDecay(config, lr);
}

// [W1]; every number is a power of two, so that the results are exact.
TEST(WeightDecayTest, ModesTakeTheirShareOfTheWeightOrAddToTheGradient) {
  const double lr = 0x1p-2;
  const DecayScalars decoupled = Prepared(DecayMode::kDecoupled, 0.5, lr);
  EXPECT_EQ(DecayedWeight(decoupled, 8.0f), 8.0f * (1 - 0x1p-3f));
  EXPECT_EQ(DecayedGradient(decoupled, 3.0f, 8.0f), 3.0f);
  const DecayScalars independent = Prepared(DecayMode::kIndependent, 0.5, lr);
  EXPECT_EQ(DecayedWeight(independent, 8.0f), 4.0f);
  EXPECT_EQ(DecayedGradient(independent, 3.0f, 8.0f), 3.0f);
  const DecayScalars l2 = Prepared(DecayMode::kL2, 0.5, lr);
  EXPECT_EQ(DecayedWeight(l2, 8.0f), 8.0f);
  EXPECT_EQ(DecayedGradient(l2, 3.0f, 8.0f), 7.0f);
  const DecayScalars palm = Prepared(DecayMode::kPalm, 0.5, lr);
  EXPECT_EQ(DecayedWeight(palm, 8.0f), 8.0f * (1 - 0x1p-5f));
  EXPECT_EQ(DecayedGradient(palm, 3.0f, 8.0f), 3.0f);
}

// Edge 45.
TEST(WeightDecayTest, NoDecayLeavesWeightAndGradientTheirBits) {
  for (const DecayMode mode :
       {DecayMode::kDecoupled, DecayMode::kIndependent, DecayMode::kL2, DecayMode::kPalm}) {
    const DecayScalars none = Prepared(mode, 0, 0.25);
    EXPECT_TRUE(std::signbit(DecayedWeight(none, -0.0f)));
    EXPECT_TRUE(std::signbit(DecayedGradient(none, -0.0f, 8.0f)));
    EXPECT_EQ(DecayedWeight(none, 1e-45f), 1e-45f);
  }
}

}  // namespace
}  // namespace kaon::kernels
