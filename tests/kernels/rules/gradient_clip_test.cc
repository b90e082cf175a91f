#include "kernels/rules/gradient_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/optimizer_rule.h"
#include "kernels/rules/sgd.h"

namespace kaon::kernels {
namespace {

// A gradient of any finite norm has the limit as its norm after the clip ([C5]). A factor of 1e-40
// has 17 bits in fp32, one of 1e-46 none.
TEST(GradientClipTest, AnyFactorLeavesAGradientItsDigits) {
  for (const double factor : {0.5, 1e-30, 0x1p-126, 0x1.fffffep-127, 1e-40, 1e-46, 1e-60, 1e-70}) {
    const ClipScalars clip = PrepareClip(factor);
    for (const float grad : {3e38f, -1.1e38f, 1e37f}) {
      const double expected = factor * grad;
      EXPECT_NEAR(ClippedGradient(clip, grad) / expected, 1, 0x1p-22) << factor << " " << grad;
    }
  }
}

// Edge 42: a factor of 1 keeps every bit of the gradient ([C5]).
TEST(GradientClipTest, AFactorOfOneLeavesEveryBit) {
  for (const float grad : {-0.0f, 0x1p-149f, 1.0f / 3, 3.4e38f}) {
    const float clipped = ClippedGradient(PrepareClip(1), grad);
    EXPECT_EQ(memcmp(&clipped, &grad, sizeof(grad)), 0) << grad;
  }
}

// If fp32 can represent the factor, the product is rounded once.
TEST(GradientClipTest, AnOrdinaryFactorIsOneProduct) {
  EXPECT_EQ(ClippedGradient(PrepareClip(0.1), 0.7f), 0.1f * 0.7f);
}

// [C5], edge 3: by a rule; a gradient of norm 1e40 clipped to 1.
TEST(GradientClipTest, ARuleStepsByTheWholeFactor) {
  SgdConfig config;
  config.momentum = 0;
  config.decay_mode = DecayMode::kDecoupled;
  float none[1] = {};
  for (const double norm : {1e40, 1e46}) {
    const float stepped = Sgd::Element(Sgd::Prepare(config, 1, 1 / norm, 1), 1e38f, 0.0f, none);
    EXPECT_NEAR(stepped / (-1e38 / norm), 1, 1e-6) << norm;
  }
}

}  // namespace
}  // namespace kaon::kernels
