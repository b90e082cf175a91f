#include "kernels/cuda/elements/digest.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/elements/element_cases.h"

namespace kaon::kernels::cuda {
namespace {

TEST(DigestTest, HasTheBitsOfTheCpu) {
  for (const int64_t n : kSizes) {
    for (const int64_t num_bytes : {n, 4 * n, 4 * n + 3}) {
      EXPECT_EQ(CompareDigest(num_bytes, 0, n), "") << num_bytes;
      EXPECT_EQ(CompareDigest(num_bytes, 4, n), "") << num_bytes << ", aligned for words";
      EXPECT_EQ(CompareDigest(num_bytes, 2, n), "") << num_bytes << ", not aligned";
    }
  }
  EXPECT_EQ(CompareDigest(0, 0, 1), "");
}

TEST(DigestTest, FindsTheLargestMagnitude) {
  for (const int64_t n : kSizes) {
    EXPECT_EQ(CompareMaxMagnitude(n, Values::kFinite, n), "") << n;
  }
  EXPECT_EQ(CompareMaxMagnitude(3000, Values::kNan, 1), "");
  EXPECT_EQ(CompareMaxMagnitude(3000, Values::kTiny, 1), "");
}

}  // namespace
}  // namespace kaon::kernels::cuda
