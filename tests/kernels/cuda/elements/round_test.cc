#include "kernels/cuda/elements/round.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {
namespace {

TEST(RoundTest, HasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const int64_t n : kSizes) {
      EXPECT_EQ(CompareRound(dtype, n, 0, n), "") << n << " to " << NameOf(dtype);
      EXPECT_EQ(CompareRound(dtype, n, 1, n), "") << n << " to " << NameOf(dtype);
    }
  }
}

}  // namespace
}  // namespace kaon::kernels::cuda
