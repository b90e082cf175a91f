#include "kernels/gemm/amx_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/float_bits.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct alignas(64) Block {
  uint16_t values[kBlockElements] = {};

  uint16_t& At(int64_t row, int64_t col) { return values[row * kBlockSide + col]; }
  uint16_t At(int64_t row, int64_t col) const { return values[row * kBlockSide + col]; }
};

Block RandomBlock(uint32_t seed) {
  const std::vector<float> x = reference::GaussianVector(kBlockElements, seed);
  Block block;
  for (int64_t i = 0; i < kBlockElements; ++i) block.values[i] = FloatToBFloat16(x[i]);
  return block;
}

class AmxTilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAmx()) GTEST_SKIP() << "this machine has no AMX tiles";
  }
};

// One product of two blocks.
SumsOfBlock Multiply(const Block& a, const Block& b) {
  const AmxTiles tiles;
  Block packed;
  PackBlock(b.values, packed.values);
  SumsOfBlock sums;
  MultiplyBlocks(a.values, packed.values, 1, false, sums);
  return sums;
}

TEST_F(AmxTilesTest, MultipliesBlocks) {
  const Block a = RandomBlock(1);
  const Block b = RandomBlock(2);
  const SumsOfBlock sums = Multiply(a, b);
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      double expected = 0;
      for (int64_t k = 0; k < kBlockSide; ++k) {
        expected += static_cast<double>(BFloat16ToFloat(a.At(i, k))) * BFloat16ToFloat(b.At(k, j));
      }
      ASSERT_NEAR(SumAt(sums, i, j), expected, 2e-5) << i << ", " << j;
    }
  }
}

// The order of the sum is part of the result, so it must not change unnoticed.
TEST_F(AmxTilesTest, AddsEvenAndOddProductsApartAndFused) {
  const Block a = RandomBlock(3);
  const Block b = RandomBlock(4);
  const SumsOfBlock sums = Multiply(a, b);
  int64_t differ = 0;
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      float even = 0;
      float odd = 0;
      for (int64_t k = 0; k < kBlockSide; k += 2) {
        even = std::fma(BFloat16ToFloat(a.At(i, k)), BFloat16ToFloat(b.At(k, j)), even);
        odd = std::fma(BFloat16ToFloat(a.At(i, k + 1)), BFloat16ToFloat(b.At(k + 1, j)), odd);
      }
      differ += SumAt(sums, i, j) != even + odd ? 1 : 0;
    }
  }
  EXPECT_EQ(differ, 0);
}

TEST_F(AmxTilesTest, AddsToTheSumsThatAreThere) {
  const Block a = RandomBlock(5);
  const Block b = RandomBlock(6);
  SumsOfBlock once = Multiply(a, b);
  const SumsOfBlock before = once;
  const AmxTiles tiles;
  Block packed;
  PackBlock(b.values, packed.values);
  MultiplyBlocks(a.values, packed.values, 1, true, once);
  for (int64_t i = 0; i < kBlockElements; ++i) {
    ASSERT_NEAR(once.values[i], 2 * before.values[i], 2e-5) << i;
  }
}

TEST_F(AmxTilesTest, TransposedPackingIsPackingOfTheTranspose) {
  const Block block = RandomBlock(7);
  Block turned;
  TransposeBlock(block.values, turned.values);
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) ASSERT_EQ(turned.At(j, i), block.At(i, j));
  }
  Block packed;
  Block packed_turned;
  PackTransposedBlock(block.values, packed.values);
  PackBlock(turned.values, packed_turned.values);
  for (int64_t i = 0; i < kBlockElements; ++i) {
    ASSERT_EQ(packed.values[i], packed_turned.values[i]) << i;
  }
}

TEST_F(AmxTilesTest, SpecialValuesPropagate) {
  Block a;
  Block b;
  a.At(0, 0) = FloatToBFloat16(kInfinity);
  a.At(1, 0) = FloatToBFloat16(std::nanf(""));
  a.At(2, 0) = FloatToBFloat16(-kInfinity);
  a.At(3, 0) = FloatToBFloat16(0x1p+127f);
  b.At(0, 0) = FloatToBFloat16(2.0f);
  b.At(0, 1) = 0;
  const SumsOfBlock sums = Multiply(a, b);
  EXPECT_EQ(SumAt(sums, 0, 0), kInfinity);
  EXPECT_TRUE(std::isnan(SumAt(sums, 0, 1)));
  EXPECT_TRUE(std::isnan(SumAt(sums, 1, 0)));
  EXPECT_EQ(SumAt(sums, 2, 0), -kInfinity);
  EXPECT_EQ(SumAt(sums, 3, 0), kInfinity);
  EXPECT_EQ(SumAt(sums, 4, 0), 0);
}

TEST_F(AmxTilesTest, TakesSubnormalsForZero) {
  Block a;
  Block b;
  a.At(0, 0) = FloatToBFloat16(0x1p-130f);
  a.At(1, 0) = FloatToBFloat16(0x1p-126f);
  b.At(0, 0) = FloatToBFloat16(0x1p+100f);
  b.At(0, 1) = FloatToBFloat16(0x1p-1f);
  const SumsOfBlock sums = Multiply(a, b);
  EXPECT_EQ(SumAt(sums, 0, 0), 0);
  EXPECT_EQ(SumAt(sums, 1, 0), 0x1p-26f);
  EXPECT_EQ(SumAt(sums, 1, 1), 0);
}

TEST_F(AmxTilesTest, RoundsTheScaledSumWithItsAddendOnce) {
  const std::vector<float> x = reference::GaussianVector(kBlockElements, 8);
  const Block addend = RandomBlock(9);
  SumsOfBlock sums;
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      sums.values[(i / 16 * 2 + j / 16) * 256 + i % 16 * 16 + j % 16] = x[i * kBlockSide + j];
    }
  }
  for (const float beta : {0.0f, -1.75f}) {
    Block rounded;
    RoundSums(sums, 2.5f, beta, beta == 0 ? nullptr : addend.values, rounded.values);
    for (int64_t i = 0; i < kBlockElements; ++i) {
      const float scaled = 2.5f * x[i];
      const float expected =
          beta == 0 ? scaled : std::fma(beta, BFloat16ToFloat(addend.values[i]), scaled);
      ASSERT_EQ(rounded.values[i], FloatToBFloat16(expected)) << i;
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
