#include "kernels/cuda/products/symmetric_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace kaon::kernels::cuda {
namespace {

// Batch, and row and column of a block; the larger index first, as mirror images are one block.
using Block = std::tuple<int, int, int>;

// Returns how often each step of each block is computed.
std::map<Block, std::vector<int>> StepsOf(const SymmetricSchedule& schedule, int steps) {
  std::map<Block, std::vector<int>> counts;
  for (const SymmetricWork& w : schedule.work) {
    for (const int col : w.cols) {
      if (col < 0) continue;
      std::vector<int>& count = counts[{w.batch, std::max(w.row, col), std::min(w.row, col)}];
      count.resize(static_cast<size_t>(steps));
      for (int k = 0; k < w.num_steps; ++k) ++count[static_cast<size_t>(w.first_step + k)];
    }
  }
  return counts;
}

TEST(SymmetricScheduleTest, ComputesEveryStepOfEachBlockOnce) {
  for (const int64_t n : {1, 128, 129, 300, 640, 700, 2500, 4096}) {
    const SymmetricSchedule schedule = MakeSymmetricSchedule(n, 1000, 2, 132);
    const auto steps = StepsOf(schedule, 16);
    for (const auto& [block, counts] : steps) EXPECT_EQ(counts, std::vector<int>(16, 1));
    const auto blocks = static_cast<size_t>((n + kBlockEdge - 1) / kBlockEdge);
    EXPECT_EQ(steps.size(), blocks * (blocks + 1)) << n;
    EXPECT_EQ(std::get<1>(steps.rbegin()->first), static_cast<int>(blocks - 1) * kBlockEdge) << n;
    EXPECT_EQ(static_cast<size_t>(2 * NumSymmetricTiles(n)),
              schedule.work.size() - schedule.cut.size() * static_cast<size_t>(schedule.parts - 1))
        << n;
  }
}

TEST(SymmetricScheduleTest, CutsTheLastWaveOnly) {
  // 315 tiles of 64 steps: two waves of 132, and 51 tiles in 2 parts of 32 steps.
  const SymmetricSchedule schedule = MakeSymmetricSchedule(34 * 128 + 1, 4096, 1, 132);
  EXPECT_EQ(schedule.cut.size(), 51u);
  EXPECT_EQ(schedule.parts, 2);
  EXPECT_EQ(schedule.work.size(), 264u + 102u);
  EXPECT_EQ(schedule.workspace_bytes(), uint64_t{102} * 128 * 256 * 4);
  for (size_t i = 0; i < schedule.work.size(); ++i) {
    EXPECT_EQ(schedule.work[i].part, i < 264 ? -1 : static_cast<int>(i) - 264);
  }
}

TEST(SymmetricScheduleTest, CutsNothingThatIsShortOrFillsItsWave) {
  EXPECT_EQ(MakeSymmetricSchedule(256, 448, 1, 132).workspace_bytes(), 0u);
  EXPECT_EQ(MakeSymmetricSchedule(4096, 4096, 1, 132).workspace_bytes(), 0u);
  EXPECT_EQ(MakeSymmetricSchedule(256, 4096, 66, 132).workspace_bytes(), 0u);
}

TEST(SymmetricScheduleTest, GroupsSquaresThatShareOperands) {
  const SymmetricSchedule schedule = MakeSymmetricSchedule(8192, 64, 1, 132);
  // The first group is a triangle of 136 blocks, the next a square of 256.
  for (size_t i = 0; i < 68; ++i) EXPECT_LT(schedule.work[i].row, 2048);
  for (size_t i = 68; i < 196; ++i) {
    EXPECT_GE(schedule.work[i].row, 2048);
    EXPECT_LT(schedule.work[i].cols[1], 2048);
  }
}

TEST(SymmetricScheduleDeathTest, RefusesWhatDoesNotCountInAnInt) {
  EXPECT_DEATH(MakeSymmetricSchedule(int64_t{1} << 31, 1, 1, 132), "products of 2147483648 x 1");
}

}  // namespace
}  // namespace kaon::kernels::cuda
