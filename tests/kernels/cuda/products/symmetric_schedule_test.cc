#include "kernels/cuda/products/symmetric_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace kaon::kernels::cuda {
namespace {

using Tile = std::tuple<int, int, int>;

// Returns how many steps of each tile the schedule has; each step must come once.
std::map<Tile, std::vector<int>> StepsOf(const SymmetricSchedule& schedule, int steps) {
  std::map<Tile, std::vector<int>> counts;
  for (const SymmetricWork& w : schedule.work) {
    std::vector<int>& count = counts[{w.batch, w.row, w.col}];
    count.resize(static_cast<size_t>(steps));
    for (int k = 0; k < w.num_steps; ++k) ++count[static_cast<size_t>(w.first_step + k)];
  }
  return counts;
}

TEST(SymmetricScheduleTest, CoversEveryStepOfTheLowerTriangleOnce) {
  for (const int64_t n : {1, 128, 129, 300, 2500, 4096}) {
    const SymmetricSchedule schedule = MakeSymmetricSchedule(n, 1000, 2, 132);
    const auto steps = StepsOf(schedule, 16);
    for (const auto& [tile, counts] : steps) EXPECT_EQ(counts, std::vector<int>(16, 1));
    size_t tiles = 0;
    for (int row = 0; row < n; row += kTileRows) {
      for (int col = 0; col <= row; col += kTileCols) {
        ++tiles;
        EXPECT_EQ(steps.count({0, row, col}) + steps.count({1, row, col}), 2u) << row << " " << col;
      }
    }
    EXPECT_EQ(steps.size(), 2 * tiles);
  }
}

TEST(SymmetricScheduleTest, CutsTheLastWaveOnly) {
  // 272 tiles of 64 steps: two waves of 132, and 8 tiles in 16 parts of 4 steps.
  const SymmetricSchedule schedule = MakeSymmetricSchedule(4096, 4096, 1, 132);
  EXPECT_EQ(schedule.cut.size(), 8u);
  EXPECT_EQ(schedule.parts, 16);
  EXPECT_EQ(schedule.work.size(), 264u + 128u);
  EXPECT_EQ(schedule.workspace_bytes(), uint64_t{128} * 128 * 256 * 4);
  for (size_t i = 0; i < schedule.work.size(); ++i) {
    EXPECT_EQ(schedule.work[i].part, i < 264 ? -1 : static_cast<int>(i) - 264);
  }
}

TEST(SymmetricScheduleTest, CutsNothingThatIsShortOrFillsItsWave) {
  EXPECT_EQ(MakeSymmetricSchedule(256, 448, 1, 132).workspace_bytes(), 0u);
  EXPECT_EQ(MakeSymmetricSchedule(8192, 8192, 1, 132).workspace_bytes(), 0u);
  EXPECT_EQ(MakeSymmetricSchedule(256, 4096, 66, 132).workspace_bytes(), 0u);
}

TEST(SymmetricScheduleTest, GroupsSquaresThatShareOperands) {
  const SymmetricSchedule schedule = MakeSymmetricSchedule(8192, 64, 1, 132);
  // The first group is a triangle of 36 squares, the next a square of 64.
  for (size_t i = 0; i < 72; ++i) EXPECT_LT(schedule.work[i].row, 2048);
  for (size_t i = 72; i < 200; ++i) {
    EXPECT_GE(schedule.work[i].row, 2048);
    EXPECT_LT(schedule.work[i].col, 2048);
  }
}

TEST(SymmetricScheduleDeathTest, RefusesWhatDoesNotCountInAnInt) {
  EXPECT_DEATH(MakeSymmetricSchedule(int64_t{1} << 31, 1, 1, 132), "products of 2147483648 x 1");
}

}  // namespace
}  // namespace kaon::kernels::cuda
