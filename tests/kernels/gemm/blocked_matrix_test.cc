#include "kernels/gemm/blocked_matrix.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kernels/dtype.h"
#include "tests/kernels/reference/random_matrices.h"

namespace kaon::kernels {
namespace {

TEST(BlockedMatrixTest, EveryElementHasAPlaceOfItsOwn) {
  std::set<int64_t> places;
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t col = 0; col < 70; ++col) places.insert(BlockedIndex(70, row, col));
  }
  EXPECT_EQ(places.size(), 40u * 70u);
  EXPECT_GE(*places.begin(), 0);
  EXPECT_LT(*places.rbegin(), BlockedElements(40, 70));
  EXPECT_EQ(BlockedElements(40, 70), 2 * 3 * kBlockElements);
}

TEST(BlockedMatrixTest, RoundsToNearestEvenAndFillsUpWithZeros) {
  const std::vector<float> tile = reference::GaussianVector(kBlockElements, 1);
  for (const int64_t height : {1, 31, 32}) {
    for (const int64_t width : {1, 17, 32}) {
      std::vector<uint16_t> block(kBlockElements, 0xffff);
      RoundToBlock(tile.data(), height, width, block.data());
      std::vector<float> wide(kBlockElements);
      WidenBlock(block.data(), wide.data());
      for (int64_t i = 0; i < kBlockSide; ++i) {
        for (int64_t j = 0; j < kBlockSide; ++j) {
          const float x = tile[i * kBlockSide + j];
          const bool inside = i < height && j < width;
          ASSERT_EQ(wide[i * kBlockSide + j], inside ? RoundTo(DType::kBFloat16, x) : 0.0f)
              << height << " x " << width << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST(BlockedMatrixTest, CopiesRowsOfAWiderMatrix) {
  std::vector<uint16_t> from(3 * 40);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i + 1);
  std::vector<uint16_t> block(kBlockElements, 0xffff);
  CopyToBlock(from.data(), 40, 3, 5, block.data());
  for (int64_t i = 0; i < kBlockSide; ++i) {
    for (int64_t j = 0; j < kBlockSide; ++j) {
      const bool inside = i < 3 && j < 5;
      ASSERT_EQ(block[i * kBlockSide + j], inside ? 40 * i + j + 1 : 0) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace kaon::kernels
