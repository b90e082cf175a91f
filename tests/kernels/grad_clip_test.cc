#include "kernels/grad_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::kernels {
namespace {

TEST(GradClipTest, LiveGroupsShareOneFactorFromTheirNormAlone) {
  // Group 1 is exempt, and huge ([C8] `live`).
  const ClipResult result = ClipByNorm({{0, 9.0}, {1, 1e12}, {2, 16.0}}, {false, true, false}, 2.0);
  EXPECT_DOUBLE_EQ(result.live_norm, 5.0);
  EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(1e12 + 25));
  EXPECT_EQ(result.group_norms, (std::vector<double>{3.0, 1e6, 4.0}));
  const double expected = reference::ClipFactor({3.0, 4.0}, 2.0);
  EXPECT_DOUBLE_EQ(result.clip_factors[0], expected);
  EXPECT_EQ(result.clip_factors[1], 1.0);
  EXPECT_EQ(result.clip_factors[2], result.clip_factors[0]);
}

TEST(GradClipTest, NormsWithinTheLimitLeaveFactorsExactlyOne) {
  const ClipResult result = ClipByNorm({{0, 0.25}}, {false}, 1.0);
  EXPECT_EQ(result.clip_factors, std::vector<double>{1.0});
}

// Edge case 42.
TEST(GradClipTest, NormAtTheLimitIsClippedByTheEpsilon) {
  const ClipResult result = ClipByNorm({{0, 1.0}}, {false}, 1.0);
  EXPECT_LT(result.clip_factors[0], 1.0);
  EXPECT_DOUBLE_EQ(result.clip_factors[0], 1.0 / (1.0 + 1e-6));
}

// Edge case 42: zero is off, unlike torch's, which zeroes the gradients.
TEST(GradClipTest, ZeroLimitMeansOffAndNormsAreStillReported) {
  const ClipResult result = ClipByNorm({{0, 1e16}}, {false}, 0.0);
  EXPECT_EQ(result.clip_factors, std::vector<double>{1.0});
  EXPECT_EQ(result.grad_norm, 1e8);
  EXPECT_EQ(result.live_norm, 1e8);
}

// Edge case 7, [T5].
TEST(GradClipTest, AllExemptIsNeverClippedAndNormsAreStillReported) {
  const ClipResult result = ClipByNorm({{0, 1e16}, {1, 1e18}}, {true, true}, 1.0);
  EXPECT_EQ(result.clip_factors, (std::vector<double>{1.0, 1.0}));
  EXPECT_EQ(result.live_norm, 0.0);
  EXPECT_EQ(result.group_norms, (std::vector<double>{1e8, 1e9}));
}

// Edge case 6: a huge exempt norm must not crush the live group's.
TEST(GradClipTest, ExemptNormDoesNotClipALiveGroupWithinTheLimit) {
  const ClipResult result = ClipByNorm({{0, 6.2e6 * 6.2e6}, {1, 4e-4 * 4e-4}}, {true, false}, 1.0);
  EXPECT_EQ(result.clip_factors, (std::vector<double>{1.0, 1.0}));
}

// Edge case 3.
TEST(GradClipTest, TinyFactorsComeOutInFull) {
  const ClipResult result = ClipByNorm({{0, 2.5e15}}, {false}, 1.0);
  EXPECT_NEAR(result.clip_factors[0], 2e-8, 1e-14);
}

// [C4].
TEST(GradClipTest, NoGradientsAndEmptyGroupsHaveNormZeroAndFactorOne) {
  const ClipResult none = ClipByNorm({}, {}, 1.0);
  EXPECT_EQ(none.grad_norm, 0);
  const ClipResult empty_group = ClipByNorm({{1, 4.0}}, {false, false}, 10.0);
  EXPECT_EQ(empty_group.group_norms, (std::vector<double>{0.0, 2.0}));
  EXPECT_EQ(empty_group.clip_factors, (std::vector<double>{1.0, 1.0}));
}

// Sums come in parameter order and are added in it, wherever the parameters live.
TEST(GradClipTest, AddsInTheGivenOrder) {
  const std::vector<ClipInput> inputs = {{0, 1.0}, {0, 1e16}, {0, 1.0}, {0, 1.0}};
  EXPECT_EQ(ClipByNorm(inputs, {true}, 0).grad_norm, std::sqrt(((1.0 + 1e16) + 1.0) + 1.0));
}

TEST(GradClipDeathTest, NonFiniteSumIsOurBug) {
  EXPECT_DEATH(ClipByNorm({{0, std::numeric_limits<double>::infinity()}}, {false}, 1.0),
               "must be finite");
}

}  // namespace
}  // namespace kaon::kernels
