#include "server/shard/gradients/reduction.h"

#include <gtest/gtest.h>

#include "tests/server/shard/agreement/plans.h"

namespace kaon::shard {
namespace {

// [T5], [T7]; w is Muon's, b AdamW's, f frozen.
TEST(ReductionTest, FollowsFromTheGroupOfTheParameter) {
  v1::RegisterBody job = MakeRegistration();
  v1::JobDefinition& definition = *job.mutable_definition();
  definition.mutable_groups(1)->set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  std::vector<Reduction> reductions = ReductionsOf(job);
  ASSERT_EQ(reductions.size(), 3u);
  EXPECT_TRUE(reductions[0].takes_sum);
  EXPECT_FALSE(reductions[0].zero_if_missing);
  EXPECT_TRUE(reductions[1].takes_sum);
  EXPECT_TRUE(reductions[1].zero_if_missing);
  EXPECT_FALSE(reductions[2].zero_if_missing);
  definition.set_report_norms(v1::REPORT_NORMS_OFF);
  definition.set_max_grad_norm(1);
  reductions = ReductionsOf(job);
  EXPECT_FALSE(reductions[0].takes_sum);
  EXPECT_TRUE(reductions[1].takes_sum);
}

}  // namespace
}  // namespace kaon::shard
