#include "server/coordinator/machine/grad_norm_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kaon::coordinator {
namespace {

class GradNormWatchTest : public ::testing::Test {
 protected:
  // Rank i has a gradient of this norm, half of its square on each of two shards.
  void Step(const std::vector<double>& norms, double loss_scale = 1, uint32_t micro_batches = 1) {
    v1::StepPlan plan;
    v1::StepBody& step = *plan.mutable_step();
    step.set_step(++step_);
    plan.set_position(step_ + 2);
    step.set_kind(v1::STEP_KIND_TRAIN);
    step.set_loss_scale(loss_scale);
    std::vector<v1::Prepared> votes(2);
    for (v1::Prepared& vote : votes) vote.add_sums();
    for (uint32_t rank = 0; rank < norms.size(); ++rank) {
      v1::Member& member = *step.add_members();
      member.set_rank(rank);
      member.set_micro_batches(micro_batches);
      for (v1::Prepared& vote : votes) {
        v1::WorkerSum& sum = *vote.add_worker_sums();
        sum.set_rank(rank);
        sum.set_sum_squares(norms[rank] * norms[rank] * micro_batches * loss_scale * loss_scale /
                            2);
      }
    }
    watch_.Judge(plan, votes);
  }
  void Steps(int count, const std::vector<double>& norms) {
    for (int i = 0; i < count; ++i) Step(norms);
  }

  uint64_t step_ = 0;
  GradNormWatch watch_;
};

TEST_F(GradNormWatchTest, PointsOutTheOneThatIsFarFromTheOthersAndFromItself) {
  Steps(8, {1, 2, 1.5});
  EXPECT_EQ(watch_.total(), 0u);
  Step({1, 2000, 1.5});
  ASSERT_EQ(watch_.newest().size(), 1u);
  const GradNormOutlier& outlier = watch_.newest()[0];
  EXPECT_EQ(outlier.rank, 1u);
  EXPECT_EQ(outlier.step, 9u);
  EXPECT_NEAR(outlier.norm, 2000, 1e-9);
  EXPECT_NEAR(outlier.median_of_others, 1.25, 1e-12);
  EXPECT_NEAR(outlier.usual_multiple, 1.6, 1e-12);
  EXPECT_EQ(watch_.workers().at(1).outliers, 1u);
  EXPECT_EQ(watch_.workers().at(0).outliers, 0u);
  Step({1, 2, 1.5});
  EXPECT_TRUE(watch_.newest().empty());
  EXPECT_EQ(watch_.total(), 1u);
}

TEST_F(GradNormWatchTest, TheNormIsOverAllShardsPerMicroBatchAndWithoutTheLossScale) {
  Step({3, 4}, 1024, 4);
  EXPECT_NEAR(*watch_.workers().at(0).norm, 3, 1e-12);
  EXPECT_NEAR(*watch_.workers().at(1).norm, 4, 1e-12);
}

TEST_F(GradNormWatchTest, FewerThanThreeWorkersAreNotJudged) {
  Steps(20, {1, 1});
  Step({1, 1e6});
  Steps(20, {1});
  Step({1e6});
  EXPECT_EQ(watch_.total(), 0u);
}

TEST_F(GradNormWatchTest, NobodyIsJudgedBeforeItsHistoryIsLongEnough) {
  Steps(7, {1, 1, 1});
  Step({1, 1, 1000});
  EXPECT_EQ(watch_.total(), 0u);
  Step({1, 1, 1000});
  EXPECT_EQ(watch_.total(), 1u);
}

TEST_F(GradNormWatchTest, AStepThatIsLargeForAllIsNoOutlier) {
  Steps(20, {1, 2, 3});
  Step({1000, 2100, 2900});
  EXPECT_EQ(watch_.total(), 0u);
}

TEST_F(GradNormWatchTest, OneThatIsAlwaysLargerIsNone) {
  Steps(40, {1, 1, 500});
  EXPECT_EQ(watch_.total(), 0u);
  Step({1, 1, 5000});
  EXPECT_EQ(watch_.total(), 1u);
}

TEST_F(GradNormWatchTest, WhatLastsBecomesUsual) {
  Steps(32, {1, 1, 1});
  Steps(40, {1, 1, 100});
  // Until it is half of what is remembered.
  EXPECT_EQ(watch_.total(), 16u);
}

TEST_F(GradNormWatchTest, NormsThatAreNotFiniteAreShownButNotJudged) {
  Steps(10, {1, 1, 1});
  Step({1, std::numeric_limits<double>::infinity(), std::nan("")});
  EXPECT_EQ(watch_.total(), 0u);
  EXPECT_TRUE(std::isinf(*watch_.workers().at(1).norm));
  EXPECT_TRUE(std::isnan(*watch_.workers().at(2).norm));
  Step({0, 0, 1});
  EXPECT_EQ(watch_.total(), 0u);
}

TEST_F(GradNormWatchTest, AStepOfWhichAShardSaysNothingIsNotJudged) {
  Steps(10, {1, 1, 1});
  v1::StepPlan plan;
  plan.set_position(100);
  plan.mutable_step()->set_kind(v1::STEP_KIND_TRAIN);
  plan.mutable_step()->set_loss_scale(1);
  std::vector<v1::Prepared> votes(2);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    v1::Member& member = *plan.mutable_step()->add_members();
    member.set_rank(rank);
    member.set_micro_batches(1);
    v1::WorkerSum& sum = *votes[0].add_worker_sums();
    sum.set_rank(rank);
    sum.set_sum_squares(rank == 1 ? 1e12 : 1);
  }
  for (v1::Prepared& vote : votes) vote.add_sums();
  watch_.Judge(plan, votes);
  EXPECT_EQ(watch_.total(), 0u);
  EXPECT_DOUBLE_EQ(*watch_.workers().at(1).norm, 1);
}

}  // namespace
}  // namespace kaon::coordinator
