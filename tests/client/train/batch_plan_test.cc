#include "client/train/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace kaon::train {
namespace {

using ::testing::HasSubstr;

BatchPlan MakePlan(std::vector<uint32_t> shares, int64_t num_positions = 1000) {
  BatchPlanOptions options;
  options.num_positions = num_positions;
  options.batch_size = 64;
  options.shares = std::move(shares);
  return BatchPlan::Create(options).value();
}

std::vector<int64_t> WholeBatch(BatchPlan& plan, uint64_t step, int ranks) {
  std::vector<int64_t> batch;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<int64_t> slice = plan.Slice(step, rank);
    EXPECT_EQ(slice.size(), static_cast<size_t>(plan.slice_size(rank)));
    batch.insert(batch.end(), slice.begin(), slice.end());
  }
  return batch;
}

TEST(BatchPlanTest, DrawsTheSameBatchWhateverTheSplit) {
  BatchPlan one = MakePlan({1});
  BatchPlan three = MakePlan({1, 2, 5});
  for (uint64_t step : {1, 2, 17}) {
    EXPECT_EQ(WholeBatch(one, step, 1), WholeBatch(three, step, 3)) << step;
  }
}

TEST(BatchPlanTest, SplitsByShares) {
  const BatchPlan plan = MakePlan({3, 5});
  EXPECT_EQ(plan.slice_size(0), 24);
  EXPECT_EQ(plan.slice_size(1), 40);
}

TEST(BatchPlanTest, GivesEveryPositionOfABatchAwayWhenSharesDoNotDivideIt) {
  const BatchPlan plan = MakePlan({1, 1, 1});
  EXPECT_EQ(plan.slice_size(0) + plan.slice_size(1) + plan.slice_size(2), 64);
}

TEST(BatchPlanTest, VisitsEveryPositionOncePerEpoch) {
  BatchPlan plan = MakePlan({1}, 640);
  std::set<int64_t> seen;
  for (uint64_t step = 1; step <= 10; ++step) {
    for (int64_t position : plan.Slice(step, 0)) EXPECT_TRUE(seen.insert(position).second);
  }
  EXPECT_EQ(seen.size(), 640u);
  EXPECT_EQ(*seen.rbegin(), 639);
  EXPECT_NE(plan.Slice(11, 0), plan.Slice(1, 0));
}

TEST(BatchPlanTest, CanBeAskedForStepsInAnyOrder) {
  BatchPlan forward = MakePlan({1}, 100);
  BatchPlan backward = MakePlan({1}, 100);
  const std::vector<int64_t> second = forward.Slice(2, 0);
  backward.Slice(9, 0);
  EXPECT_EQ(backward.Slice(2, 0), second);
}

TEST(BatchPlanTest, RefusesARankWithoutWork) {
  BatchPlanOptions options;
  options.num_positions = 10;
  options.batch_size = 8;
  options.shares = {1, 0};
  const absl::Status status = BatchPlan::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST(LearningRateMultiplierTest, WarmsUpStaysAndDecays) {
  EXPECT_DOUBLE_EQ(LearningRateMultiplier(1, 100), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateMultiplier(5, 100), 1);
  EXPECT_DOUBLE_EQ(LearningRateMultiplier(51, 100), 1);
  EXPECT_DOUBLE_EQ(LearningRateMultiplier(76, 100), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateMultiplier(100, 100), 0.02);
}

TEST(LearningRateMultiplierTest, IsPositiveForTheShortestRuns) {
  for (uint64_t steps : {1, 2, 3}) {
    for (uint64_t step = 1; step <= steps; ++step) {
      EXPECT_GT(LearningRateMultiplier(step, steps), 0);
    }
  }
}

}  // namespace
}  // namespace kaon::train
