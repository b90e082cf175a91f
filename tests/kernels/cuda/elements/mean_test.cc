#include "kernels/cuda/elements/mean.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {
namespace {

TEST(MeanTest, HasTheBitsOfTheCpu) {
  for (const int64_t n : kSizes) {
    EXPECT_EQ(CompareMean({.num_elements = n}, n), "") << n;
    EXPECT_EQ(CompareMean({.num_elements = n, .shift = 3}, n), "") << n << ", not aligned";
  }
}

TEST(MeanTest, HasTheBitsOfTheCpuForAnyDivisors) {
  for (const float weight : {1.0f, 0.1f, 0x1p-100f, 0x1p125f}) {
    EXPECT_EQ(CompareMean({.num_elements = 4500, .total_weight = weight, .loss_scale = 1}, 5), "")
        << weight;
  }
}

TEST(MeanTest, DescribesSpecialElements) {
  for (const Values values :
       {Values::kInfinite, Values::kNan, Values::kZero, Values::kTiny, Values::kFinite}) {
    EXPECT_EQ(CompareMean({.num_elements = 9000, .values = values}, 6), "")
        << static_cast<int>(values);
  }
}

TEST(MeanTest, LeavesOutTheSumThatNobodyReads) {
  EXPECT_EQ(CompareMean({.num_elements = 5000, .takes_sum = false}, 8), "");
}

TEST(MeanTest, DependsNotOnTheOrderOfThreads) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(CompareMean({.num_elements = 5000}, seed), "") << seed;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
