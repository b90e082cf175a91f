#include "kernels/cuda/elements/fold.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

TEST(FoldTest, HasTheBitsOfTheCpu) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : kSizes) {
      EXPECT_EQ(CompareFold({.dtype = dtype, .num_elements = n}, n), "")
          << n << " of " << NameOf(dtype);
    }
  }
}

TEST(FoldTest, HasTheBitsOfTheCpuAtAnyAlignment) {
  for (const DType dtype : kDTypes) {
    for (const size_t shift : {1, 2, 8, 15}) {
      EXPECT_EQ(CompareFold({.dtype = dtype, .num_elements = 2100, .shift_bytes = shift}, shift),
                "")
          << shift << " bytes, " << NameOf(dtype);
    }
    EXPECT_EQ(CompareFold({.dtype = dtype, .num_elements = 4096, .sum_shift = 1}, 1), "")
        << NameOf(dtype);
  }
}

TEST(FoldTest, KeepsSquaresThatVanishInFloat32) {
  for (const Values values : {Values::kTiny, Values::kZero, Values::kFinite}) {
    EXPECT_EQ(CompareFold({.num_elements = 5000, .values = values}, 7), "");
  }
}

TEST(FoldTest, SeesElementsThatAreNotFinite) {
  for (const DType dtype : kDTypes) {
    for (const Values values : {Values::kInfinite, Values::kNan}) {
      EXPECT_EQ(CompareFold({.dtype = dtype, .num_elements = 5000, .values = values}, 3), "")
          << NameOf(dtype);
    }
  }
}

TEST(FoldTest, DependsNotOnTheOrderOfThreads) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(CompareFold({.dtype = DType::kBFloat16, .num_elements = 3000}, seed), "") << seed;
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
