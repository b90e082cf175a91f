#include "client/train/random.h"

#include <gtest/gtest.h>

#include <set>

namespace kaon::train {
namespace {

TEST(RandomTest, GivesTheSameBitsEverywhere) {
  EXPECT_EQ(RandomBits(1, 2, 3), 0xd0734750fde362b3u);
}

TEST(RandomTest, DiffersBySeedStreamAndIndex) {
  const std::set<uint64_t> words = {RandomBits(1, 2, 3), RandomBits(2, 2, 3), RandomBits(1, 3, 3),
                                    RandomBits(1, 2, 4), RandomBits(1, 3, 2)};
  EXPECT_EQ(words.size(), 5u);
}

TEST(RandomTest, IsUniformOnTheUnitInterval) {
  double sum = 0;
  double sum_squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = UnitUniform(1, 0, i);
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    sum_squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(sum_squares / kDraws, 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace kaon::train
