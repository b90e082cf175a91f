#include "kernels/reduce/grad_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/reference/float64_optimizer.h"

namespace kaon::kernels {
namespace {

// Live returns an input of a group in norm group 0.
ClipInput Live(int group, double sum_squares) { return {group, 0, false, true, sum_squares}; }
ClipInput Exempt(int group, double sum_squares) { return {group, 0, true, true, sum_squares}; }

ClipPolicy MaxNorm(double max_grad_norm) { return {{max_grad_norm}, ClipScope::kLive, 0}; }

TEST(GradClipTest, LiveGroupsShareOneFactorFromTheirNormAlone) {
  // Group 1 is exempt, and huge ([C8] `live`).
  const ClipResult result =
      ClipByNorm({Live(0, 9.0), Exempt(1, 1e12), Live(2, 16.0)}, 3, MaxNorm(2.0));
  EXPECT_DOUBLE_EQ(result.norm_groups[0].live_norm, 5.0);
  EXPECT_DOUBLE_EQ(result.norm_groups[0].norm, std::sqrt(1e12 + 25));
  EXPECT_EQ(result.group_norms, (std::vector<double>{3.0, 1e6, 4.0}));
  const double expected = reference::ClipFactor({3.0, 4.0}, 2.0);
  EXPECT_DOUBLE_EQ(result.norm_groups[0].clip_factor, expected);
}

// The scope `all` clips by the norm with the exempt groups ([C8]).
TEST(GradClipTest, ScopeAllClipsByTheWholeNorm) {
  ClipPolicy policy = MaxNorm(2.0);
  policy.scope = ClipScope::kAll;
  const ClipResult result = ClipByNorm({Live(0, 9.0), Exempt(1, 16.0)}, 2, policy);
  EXPECT_DOUBLE_EQ(result.norm_groups[0].clip_factor, reference::ClipFactor({3.0, 4.0}, 2.0));
}

TEST(GradClipTest, NormsWithinTheLimitLeaveTheFactorExactlyOne) {
  EXPECT_EQ(ClipByNorm({Live(0, 0.25)}, 1, MaxNorm(1.0)).norm_groups[0].clip_factor, 1.0);
}

// Edge 42: the clip factor has an epsilon, so a norm at the limit is clipped ([C5]).
TEST(GradClipTest, NormAtTheLimitIsClippedByTheEpsilon) {
  EXPECT_LT(ClipFactor(1.0, 1.0, 0), 1.0);
  EXPECT_EQ(ClipFactor(1.0, 1.0, 0), 1.0 / (1.0 + 1e-6));
}

// Edge 42: zero is off, unlike torch's, which zeroes the gradients.
TEST(GradClipTest, ZeroLimitMeansOffAndNormsAreStillReported) {
  const ClipResult result = ClipByNorm({Live(0, 1e16)}, 1, MaxNorm(0));
  EXPECT_EQ(result.norm_groups[0].clip_factor, 1.0);
  EXPECT_EQ(result.norm_groups[0].norm, 1e8);
  EXPECT_EQ(result.norm_groups[0].live_norm, 1e8);
  EXPECT_EQ(ClipFactor(1e16, 0, 0.5), 1.0);
}

// Edge 7: if every group is exempt, nothing is clipped and norms are still reported ([T5]).
TEST(GradClipTest, AllExemptIsNeverClippedAndNormsAreStillReported) {
  ClipPolicy policy = MaxNorm(1.0);
  for (const ClipScope scope : {ClipScope::kLive, ClipScope::kAll}) {
    policy.scope = scope;
    const ClipResult result = ClipByNorm({Exempt(0, 1e16), Exempt(1, 1e18)}, 2, policy);
    EXPECT_EQ(result.norm_groups[0].clip_factor, 1.0);
    EXPECT_EQ(result.norm_groups[0].live_norm, 0.0);
    EXPECT_EQ(result.group_norms, (std::vector<double>{1e8, 1e9}));
  }
}

// Edge 6: a huge exempt norm must not crush the live group's.
TEST(GradClipTest, ExemptNormDoesNotClipALiveGroupWithinTheLimit) {
  const ClipResult result =
      ClipByNorm({Exempt(0, 6.2e6 * 6.2e6), Live(1, 4e-4 * 4e-4)}, 2, MaxNorm(1.0));
  EXPECT_EQ(result.norm_groups[0].clip_factor, 1.0);
}

// Edge 3.
TEST(GradClipTest, TinyFactorsComeOutInFull) {
  EXPECT_NEAR(ClipFactor(5e7, 1.0, 0), 2e-8, 1e-14);
  EXPECT_NEAR(ClipFactor(2e11, 1.0, 0), 5e-12, 1e-17);
}

// The floor raises small factors and never lowers one ([C6]).
TEST(GradClipTest, FloorRaisesFactorsAndLowersNone) {
  EXPECT_EQ(ClipFactor(5e7, 1.0, 0.01), 0.01);
  EXPECT_EQ(ClipFactor(4.0, 1.0, 0.01), ClipFactor(4.0, 1.0, 0));
  EXPECT_EQ(ClipFactor(0.5, 1.0, 0.01), 1.0);
  EXPECT_EQ(ClipFactor(5e7, 1.0, 1.0), 1.0);
}

// Each norm group is reported and clipped with its own norm ([C3]).
TEST(GradClipTest, NormGroupsAreApart) {
  const ClipResult result = ClipByNorm({{0, 0, false, true, 9.0}, {0, 1, false, true, 1e12}}, 1,
                                       {{1.0, 2.0}, ClipScope::kLive, 0});
  EXPECT_EQ(result.norm_groups[0].norm, 3);
  EXPECT_EQ(result.norm_groups[0].clip_factor, ClipFactor(3, 1, 0));
  EXPECT_EQ(result.norm_groups[1].norm, 1e6);
  EXPECT_EQ(result.norm_groups[1].clip_factor, ClipFactor(1e6, 2, 0));
  EXPECT_EQ(result.group_norms[0], std::sqrt(9.0 + 1e12));
}

// A copy is in no norm, and is scaled even if nothing else is live ([C2]).
TEST(GradClipTest, CopiesAreScaledAndNotCounted) {
  ClipPolicy policy = MaxNorm(1.0);
  policy.scope = ClipScope::kAll;
  const ClipResult result = ClipByNorm({Exempt(0, 16.0), {1, 0, false, false, 1e12}}, 2, policy);
  EXPECT_EQ(result.norm_groups[0].norm, 4);
  EXPECT_EQ(result.norm_groups[0].live_norm, 0);
  EXPECT_EQ(result.norm_groups[0].clip_factor, ClipFactor(4, 1, 0));
  EXPECT_EQ(result.group_norms[1], 0);
}

// Without gradients the norm is 0 and the factor 1 ([C4]).
TEST(GradClipTest, NoGradientsAndEmptyGroupsHaveNormZeroAndFactorOne) {
  const ClipResult none = ClipByNorm({}, 0, MaxNorm(1.0));
  EXPECT_EQ(none.norm_groups[0].norm, 0);
  EXPECT_EQ(none.norm_groups[0].clip_factor, 1);
  const ClipResult empty_group = ClipByNorm({Live(1, 4.0)}, 2, MaxNorm(10.0));
  EXPECT_EQ(empty_group.group_norms, (std::vector<double>{0.0, 2.0}));
}

// Sums arrive and are added in parameter order, wherever the parameters are.
TEST(GradClipTest, AddsInTheGivenOrder) {
  const std::vector<ClipInput> inputs = {Live(0, 1.0), Live(0, 1e16), Live(0, 1.0), Live(0, 1.0)};
  EXPECT_EQ(ClipByNorm(inputs, 1, MaxNorm(0)).norm_groups[0].norm,
            std::sqrt(((1.0 + 1e16) + 1.0) + 1.0));
}

TEST(GradClipDeathTest, NonFiniteSumIsOurBug) {
  EXPECT_DEATH(ClipByNorm({Live(0, std::numeric_limits<double>::infinity())}, 1, MaxNorm(1.0)),
               "must be finite");
}

}  // namespace
}  // namespace kaon::kernels
