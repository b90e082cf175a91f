#include "kernels/matrix_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/reference/float64_muon.h"

namespace kaon::kernels {
namespace {

using ::testing::HasSubstr;

const std::map<MatrixLayoutKind, std::string> kNames = {
    {MatrixLayoutKind::kMatrix, "matrix"},
    {MatrixLayoutKind::kBatched, "batched"},
    {MatrixLayoutKind::kConvFlatten, "conv_flatten"},
    {MatrixLayoutKind::kSplitRows, "split_rows"},
    {MatrixLayoutKind::kQkvInterleaved, "qkv_interleaved"},
    {MatrixLayoutKind::kHeads, "heads"},
    {MatrixLayoutKind::kSplitCols, "split_cols"},
};

struct Case {
  MatrixLayout layout;
  std::vector<uint64_t> shape;
};

// Draws layouts that fit their shapes.
class RandomLayouts {
 public:
  Case Draw() {
    Case drawn;
    drawn.layout.kind = static_cast<MatrixLayoutKind>(Between(0, 6));
    switch (drawn.layout.kind) {
      case MatrixLayoutKind::kMatrix:
        drawn.shape = {Between(1, 6), Between(1, 6)};
        break;
      case MatrixLayoutKind::kBatched:
        if (Between(0, 1) == 1) drawn.layout.sizes = Sizes(Between(1, 3));
        drawn.shape = {drawn.layout.sizes.empty() ? Between(1, 5) : Sum(drawn.layout.sizes),
                       Between(1, 5)};
        for (uint64_t i = Between(1, 3); i > 0; --i) {
          drawn.shape.insert(drawn.shape.begin(), Between(1, 3));
        }
        break;
      case MatrixLayoutKind::kConvFlatten:
        for (uint64_t i = Between(3, 5); i > 0; --i) drawn.shape.push_back(Between(1, 4));
        break;
      case MatrixLayoutKind::kSplitRows:
        drawn.layout.sizes = Sizes(Between(1, 4));
        drawn.shape = {Sum(drawn.layout.sizes), Between(1, 5)};
        break;
      case MatrixLayoutKind::kSplitCols:
        drawn.layout.sizes = Sizes(Between(1, 4));
        drawn.shape = {Between(1, 5), Sum(drawn.layout.sizes)};
        break;
      case MatrixLayoutKind::kHeads:
        drawn.layout.num_heads = Between(1, 4);
        drawn.shape = {drawn.layout.num_heads * Between(1, 3), Between(1, 5)};
        break;
      case MatrixLayoutKind::kQkvInterleaved:
        drawn.layout.sizes = Sizes(Between(2, 4));
        drawn.shape = {Sum(drawn.layout.sizes) * Between(1, 3), Between(1, 5)};
        break;
    }
    return drawn;
  }

 private:
  uint64_t Between(uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(engine_);
  }
  std::vector<uint64_t> Sizes(uint64_t count) {
    std::vector<uint64_t> sizes;
    for (uint64_t i = 0; i < count; ++i) sizes.push_back(Between(1, 4));
    return sizes;
  }
  static uint64_t Sum(const std::vector<uint64_t>& sizes) {
    uint64_t sum = 0;
    for (const uint64_t size : sizes) sum += size;
    return sum;
  }

  std::mt19937 engine_{1};
};

reference::Layout ReferenceOf(const Case& drawn) {
  reference::Layout layout;
  layout.kind = kNames.at(drawn.layout.kind);
  layout.shape.assign(drawn.shape.begin(), drawn.shape.end());
  layout.sizes.assign(drawn.layout.sizes.begin(), drawn.layout.sizes.end());
  layout.num_heads = static_cast<int64_t>(drawn.layout.num_heads);
  return layout;
}

void ExpectEveryElementOnceInItsPlace(const Case& drawn) {
  const auto blocks = MatrixBlocks(drawn.layout, drawn.shape);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  const std::vector<reference::BlockPlace> expected = reference::PlacesOf(ReferenceOf(drawn));
  std::vector<int> visits(expected.size());
  for (size_t b = 0; b < blocks->size(); ++b) {
    const MatrixBlock& block = (*blocks)[b];
    int64_t row = 0;
    for (const RowRun& run : block.runs) {
      for (int64_t i = 0; i < run.num_rows; ++i, ++row) {
        for (int64_t col = 0; col < block.cols; ++col) {
          const int64_t element = run.offset + i * block.row_stride + col;
          ASSERT_LT(element, static_cast<int64_t>(expected.size()));
          ++visits[element];
          const reference::BlockPlace place = {static_cast<int64_t>(b), row, col};
          ASSERT_EQ(expected[element], place) << "block " << b << " " << row << "," << col;
        }
      }
    }
    EXPECT_EQ(row, block.rows);
  }
  EXPECT_EQ(visits, std::vector<int>(expected.size(), 1));
}

// Every element is in exactly one block, at the place that the layout defines ([L1]-[L6]).
TEST(MatrixLayoutTest, RandomLayoutsPartitionTheParameter) {
  RandomLayouts layouts;
  for (int i = 0; i < 500; ++i) {
    const Case drawn = layouts.Draw();
    SCOPED_TRACE(kNames.at(drawn.layout.kind) + ", case " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(ExpectEveryElementOnceInItsPlace(drawn));
  }
}

// Placement and listings use the same counts as a step ([P1]).
TEST(MatrixLayoutTest, CountsAreThoseOfTheBlocks) {
  RandomLayouts layouts;
  for (int i = 0; i < 500; ++i) {
    const Case drawn = layouts.Draw();
    SCOPED_TRACE(kNames.at(drawn.layout.kind) + ", case " + std::to_string(i));
    const auto blocks = MatrixBlocks(drawn.layout, drawn.shape);
    const auto counts = CountMatrices(drawn.layout, drawn.shape);
    ASSERT_TRUE(blocks.ok() && counts.ok());
    std::vector<MatrixCount> expected;
    uint64_t runs = 0;
    for (const MatrixBlock& block : *blocks) {
      runs += block.runs.size();
      auto same = std::find_if(expected.begin(), expected.end(), [&block](const MatrixCount& one) {
        return one.rows == block.rows && one.cols == block.cols;
      });
      if (same == expected.end()) same = expected.insert(same, {block.rows, block.cols, 0});
      ++same->count;
    }
    EXPECT_EQ(NumRowRuns(drawn.layout, drawn.shape), runs);
    ASSERT_EQ(counts->size(), expected.size());
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ((*counts)[k].rows, expected[k].rows);
      EXPECT_EQ((*counts)[k].cols, expected[k].cols);
      EXPECT_EQ((*counts)[k].count, expected[k].count);
    }
  }
}

// A coordinator counts while it answers a registration: a thousand times a million blocks.
TEST(MatrixLayoutTest, CountsWithoutBuildingBlocks) {
  for (int i = 0; i < 1000; ++i) {
    const auto counts =
        CountMatrices({.kind = MatrixLayoutKind::kBatched, .sizes = {}}, {1 << 20, 1, 1});
    ASSERT_TRUE(counts.ok()) << counts.status();
    ASSERT_EQ(counts->front().count, 1 << 20);
  }
}

TEST(MatrixLayoutTest, CountsEqualBlocksInOrderOfAppearance) {
  const auto counts =
      CountMatrices({.kind = MatrixLayoutKind::kBatched, .sizes = {2, 1, 2}}, {3, 5, 4});
  ASSERT_TRUE(counts.ok()) << counts.status();
  ASSERT_EQ(counts->size(), 2u);
  EXPECT_EQ((*counts)[0].rows, 2);
  EXPECT_EQ((*counts)[0].cols, 4);
  EXPECT_EQ((*counts)[0].count, 6);
  EXPECT_EQ((*counts)[1].rows, 1);
  EXPECT_EQ((*counts)[1].count, 3);
}

// [L2]: three leading dimensions and fused gate and up rows.
TEST(MatrixLayoutTest, BatchedCutsEveryMatrix) {
  const auto blocks =
      MatrixBlocks({.kind = MatrixLayoutKind::kBatched, .sizes = {1, 2}}, {2, 1, 2, 3, 4});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  ASSERT_EQ(blocks->size(), 8u);
  const MatrixBlock& last = blocks->back();
  EXPECT_EQ(last.rows, 2);
  EXPECT_EQ(last.cols, 4);
  EXPECT_EQ(last.runs[0].offset, 40);
}

// [L5] with grouped queries and an output gate, 2 groups of 4 + 4 + 1 + 1 rows.
TEST(MatrixLayoutTest, InterleavedCollectsTheRowsOfAKind) {
  const auto blocks =
      MatrixBlocks({.kind = MatrixLayoutKind::kQkvInterleaved, .sizes = {4, 4, 1, 1}}, {20, 3});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  ASSERT_EQ(blocks->size(), 4u);
  EXPECT_EQ((*blocks)[1].rows, 8);
  ASSERT_EQ((*blocks)[1].runs.size(), 2u);
  EXPECT_EQ((*blocks)[1].runs[0].offset, 4 * 3);
  EXPECT_EQ((*blocks)[1].runs[1].offset, 14 * 3);
  EXPECT_EQ((*blocks)[3].rows, 2);
}

TEST(MatrixLayoutTest, EmptyShapesHaveEmptyBlocks) {
  const auto matrix = MatrixBlocks({}, {0, 5});
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->at(0).rows, 0);
  const auto batched = MatrixBlocks({.kind = MatrixLayoutKind::kBatched, .sizes = {}}, {0, 4, 5});
  ASSERT_TRUE(batched.ok());
  EXPECT_TRUE(batched->empty());
}

struct Refusal {
  MatrixLayout layout;
  std::vector<uint64_t> shape;
  std::string message;
};

void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    const absl::Status status = MatrixBlocks(refusal.layout, refusal.shape).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << refusal.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.message));
  }
}

TEST(MatrixLayoutTest, WrongDimensionsAreRefused) {
  using Kind = MatrixLayoutKind;
  ExpectRefused({
      {{.kind = Kind::kMatrix, .sizes = {}}, {}, "matrix needs 2 dimensions, shape [] has 0"},
      {{.kind = Kind::kMatrix, .sizes = {}},
       {2, 3, 4},
       "matrix needs 2 dimensions, shape [2, 3, 4] has 3"},
      {{.kind = Kind::kBatched, .sizes = {}},
       {4, 6},
       "batched needs >= 3 dimensions, shape [4, 6] has 2"},
      {{.kind = Kind::kConvFlatten, .sizes = {}}, {4, 6}, "conv_flatten needs >= 3 dimensions"},
      {{.kind = Kind::kSplitRows, .sizes = {2}}, {2}, "split_rows needs 2 dimensions"},
      {{.kind = Kind::kSplitCols, .sizes = {2}}, {2}, "split_cols needs 2 dimensions"},
      {{.kind = Kind::kHeads, .sizes = {}, .num_heads = 2}, {2, 2, 2}, "heads needs 2 dimensions"},
      {{.kind = Kind::kQkvInterleaved, .sizes = {1, 1}}, {2}, "qkv_interleaved needs 2 dimensions"},
      {{.kind = static_cast<Kind>(-1), .sizes = {}}, {2, 2}, "layout kind -1 is unknown"},
  });
}

// Edge 31: rows that do not divide.
TEST(MatrixLayoutTest, SizesThatDoNotFitAreRefusedWithTheArithmetic) {
  using Kind = MatrixLayoutKind;
  ExpectRefused({
      {{.kind = Kind::kQkvInterleaved, .sizes = {4, 1, 1, 1}},
       {96, 8},
       "rows 96 are not a multiple of sizes 4 + 1 + 1 + 1 = 7"},
      {{.kind = Kind::kQkvInterleaved, .sizes = {4}}, {4, 8}, "takes 2 .. 4 sizes, given 1"},
      {{.kind = Kind::kQkvInterleaved, .sizes = {1, 1, 1, 1, 1}}, {5, 8}, "2 .. 4 sizes, given 5"},
      {{.kind = Kind::kSplitRows, .sizes = {3, 4}}, {8, 6}, "sizes 3 + 4 = 7 are not the 8 rows"},
      {{.kind = Kind::kSplitRows, .sizes = {}},
       {8, 6},
       "needs sizes that add up to the 8 rows, given none"},
      {{.kind = Kind::kSplitCols, .sizes = {3, 4}}, {7, 6}, "3 + 4 = 7 are not the 6 columns"},
      {{.kind = Kind::kBatched, .sizes = {3, 4}}, {2, 8, 6}, "= 7 are not the 8 rows of each"},
      {{.kind = Kind::kHeads, .sizes = {}, .num_heads = 7},
       {96, 8},
       "rows 96 are not a multiple of num_heads 7"},
      {{.kind = Kind::kSplitRows, .sizes = {4, 0, 4}}, {8, 6}, "sizes[1] is 0, must be >= 1"},
      // The sum would be 8 if it wrapped.
      {{.kind = Kind::kSplitRows, .sizes = {std::numeric_limits<uint64_t>::max(), 9}},
       {8, 6},
       "are not the 8 rows"},
  });
}

TEST(MatrixLayoutTest, FieldsOfOtherKindsAreRefused) {
  using Kind = MatrixLayoutKind;
  ExpectRefused({
      {{.kind = Kind::kMatrix, .sizes = {1, 1}}, {2, 2}, "matrix takes no sizes, given 1, 1"},
      {{.kind = Kind::kConvFlatten, .sizes = {2}}, {2, 2, 2}, "conv_flatten takes no sizes"},
      {{.kind = Kind::kHeads, .sizes = {2}, .num_heads = 1}, {2, 2}, "heads takes no sizes"},
      {{.kind = Kind::kHeads, .sizes = {}}, {2, 2}, "num_heads is 0, must be >= 1"},
      {{.kind = Kind::kSplitRows, .sizes = {2}, .num_heads = 4},
       {2, 2},
       "split_rows takes no num_heads, given 4"},
      {{.kind = Kind::kMatrix, .sizes = {}, .num_heads = 1}, {2, 2}, "matrix takes no num_heads"},
  });
}

TEST(MatrixLayoutTest, NumberOfPiecesHasALimit) {
  using Kind = MatrixLayoutKind;
  const uint64_t most = kMostRowRuns;
  EXPECT_TRUE(MatrixBlocks({.kind = Kind::kHeads, .sizes = {}, .num_heads = most}, {most, 1}).ok());
  ExpectRefused({
      {{.kind = Kind::kHeads, .sizes = {}, .num_heads = most + 1},
       {most + 1, 1},
       "into 1048577 pieces"},
      {{.kind = Kind::kBatched, .sizes = {}}, {1024, 1025, 1, 1}, "must be <= 1048576"},
      {{.kind = Kind::kQkvInterleaved, .sizes = {1, 1}}, {2 * most, 1}, "into 2097152 pieces"},
  });
}

// A message must fit into an error's trailer however many sizes there are.
TEST(MatrixLayoutTest, LongListsAreCutInMessages) {
  const MatrixLayout layout = {.kind = MatrixLayoutKind::kSplitRows,
                               .sizes = std::vector<uint64_t>(100000, 1)};
  const absl::Status status = MatrixBlocks(layout, {8, 6}).status();
  EXPECT_LT(status.message().size(), 200u);
  EXPECT_THAT(std::string(status.message()), HasSubstr("= 100000 are not the 8 rows"));
}

}  // namespace
}  // namespace kaon::kernels
