#include "kernels/cuda/elements/muon_elements.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/muon_cases.h"

namespace kaon::kernels::cuda {
namespace {

constexpr StateDType kStateDTypes[] = {StateDType::kFloat32, StateDType::kBFloat16,
                                       StateDType::kInt8};
constexpr NsDType kNsDTypes[] = {NsDType::kFloat32, NsDType::kBFloat16, NsDType::kFloat16};

TEST(MuonMomentumTest, HasTheBitsOfTheCpu) {
  for (const StateDType dtype : kStateDTypes) {
    for (const int64_t n : kSizes) {
      EXPECT_EQ(CompareMomentum({.sizes = {n}, .state_dtype = dtype}, n), "") << n;
    }
  }
}

TEST(MuonMomentumTest, StepsABatchOfDifferentSizes) {
  for (const StateDType dtype : kStateDTypes) {
    EXPECT_EQ(CompareMomentum({.sizes = {5000, 1, 4096, 8193}, .state_dtype = dtype}, 1), "");
  }
}

TEST(MuonMomentumTest, StepsStateAndWeightsApart) {
  for (const StateDType dtype : kStateDTypes) {
    EXPECT_EQ(CompareMomentum({.sizes = {5001}, .state_dtype = dtype, .writes_state = false}, 2),
              "");
    EXPECT_EQ(
        CompareMomentum({.sizes = {5001}, .state_dtype = dtype, .writes_direction = false}, 3), "");
  }
}

TEST(MuonMomentumTest, TakesEveryFormOfTheGradient) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    EXPECT_EQ(CompareMomentum({.sizes = {4500}, .grad_dtype = dtype, .l2 = 0.1f}, 4), "");
  }
  EXPECT_EQ(CompareMomentum({.sizes = {4500}, .nesterov = false}, 5), "");
  for (const Values values : {Values::kNan, Values::kFinite, Values::kTiny}) {
    EXPECT_EQ(CompareMomentum({.sizes = {4500}, .values = values}, 6), "");
  }
}

TEST(MuonMomentumTest, DependsNotOnTheOrderOfThreads) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(CompareMomentum({.sizes = {4200}, .state_dtype = StateDType::kInt8}, seed), "")
        << seed;
  }
}

TEST(MuonMatricesTest, HaveTheBitsOfTheCpu) {
  constexpr int64_t kShapes[][2] = {{1, 1},    {1, 70},   {70, 1},   {64, 64},
                                    {65, 130}, {130, 65}, {200, 40}, {33, 257}};
  for (const NsDType dtype : kNsDTypes) {
    for (const auto& [rows, cols] : kShapes) {
      EXPECT_EQ(CompareMatrices({.rows = rows, .cols = cols, .dtype = dtype}, 1), "")
          << rows << "x" << cols;
    }
  }
}

TEST(MuonMatricesTest, RunAsBatchesInAnyLayout) {
  for (const Rows layout : {Rows::kContiguous, Rows::kStrided, Rows::kListed}) {
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(
          CompareMatrices(
              {.rows = 70, .cols = 66, .count = 3, .layout = layout, .in_place = in_place}, 2),
          "")
          << static_cast<int>(layout);
    }
  }
}

TEST(MuonMatricesTest, AddNormsByPieces) {
  EXPECT_EQ(CompareMatrices({.rows = 150, .cols = 500}, 3), "");
}

TEST(MuonMatricesTest, NormalizeInEveryMode) {
  for (const NormMode mode : {NormMode::kAddEps, NormMode::kClampEps}) {
    EXPECT_EQ(CompareMatrices({.rows = 40, .cols = 50, .norm_mode = mode}, 4), "");
  }
}

TEST(MuonMatricesTest, OrthogonalizeZeroToZero) {
  EXPECT_EQ(CompareMatrices({.rows = 40, .cols = 50, .count = 2, .values = Values::kZero}, 5), "");
}

TEST(MuonMatricesTest, CarrySpecialElements) {
  for (const Values values : {Values::kNan, Values::kInfinite, Values::kFinite}) {
    EXPECT_EQ(CompareMatrices({.rows = 80, .cols = 50, .values = values}, 5), "");
  }
}

TEST(MuonMatricesTest, CountElementsIn64Bits) {
  for (const int64_t first : {int64_t{1} << 33, (int64_t{1} << 34) + 7}) {
    EXPECT_EQ(CompareMatrices({.rows = 66, .cols = 30, .first_element = first}, 6), "") << first;
  }
}

TEST(MuonMatricesTest, DependNotOnTheOrderOfThreads) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(CompareMatrices({.rows = 100, .cols = 70, .count = 2}, seed), "") << seed;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
