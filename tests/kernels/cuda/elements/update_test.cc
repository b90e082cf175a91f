#include "kernels/cuda/elements/update.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {
namespace {

TEST(UpdateTest, HasTheBitsOfTheCpu) {
  for (const RuleConfig& rule : ElementWiseConfigs()) {
    for (const int64_t n : kSizes) {
      EXPECT_EQ(CompareUpdate({.rule = rule, .num_elements = n}, n), "")
          << RuleName(rule) << ", " << n;
    }
  }
}

TEST(UpdateTest, StepsInPlaceAndAtAnyAlignment) {
  for (const RuleConfig& rule : ElementWiseConfigs()) {
    EXPECT_EQ(CompareUpdate({.rule = rule, .num_elements = 1500, .in_place = true}, 1), "")
        << RuleName(rule);
    EXPECT_EQ(CompareUpdate({.rule = rule, .num_elements = 1500, .shift = 1}, 2), "")
        << RuleName(rule);
  }
}

TEST(UpdateTest, WidensGradients) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const RuleConfig& rule : ElementWiseConfigs()) {
      EXPECT_EQ(CompareUpdate({.rule = rule, .num_elements = 1501, .grad_dtype = dtype}, 3), "")
          << RuleName(rule) << ", " << NameOf(dtype);
    }
  }
}

TEST(UpdateTest, ShowsWeightsThatAreNotFinite) {
  for (const Values values : {Values::kInfinite, Values::kNan}) {
    for (const RuleConfig& rule : ElementWiseConfigs()) {
      EXPECT_EQ(CompareUpdate({.rule = rule, .num_elements = 3000, .values = values}, 4), "")
          << RuleName(rule);
    }
  }
}

TEST(UpdateTest, DependsNotOnTheOrderOfThreads) {
  AdamWConfig adamw;
  adamw.momentum_dtype = StateDType::kInt8;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(CompareUpdate({.rule = adamw, .num_elements = 2000, .in_place = true}, seed), "")
        << seed;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
