#include "kernels/cuda/products/symmetric_schedule.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

// Squares of 2 x 2 blocks on an edge of a group.
constexpr int kGroup = 8;
// Shorter parts cost more in their epilogue than they save.
constexpr int kLeastSteps = 4;

// Appends the tiles of a square of 2 x 2 blocks. The block (2 i, 2 i) on the diagonal has no
// neighbour left. For even i its tile takes the mirror image of the block (2 i + 2, 2 i). The rest
// of that row then has tiles of two blocks.
void AppendSquare(int i, int j, int blocks, const SymmetricWork& whole,
                  std::vector<SymmetricWork>* tiles) {
  const auto append = [&](int row, int col, int second_col) {
    SymmetricWork tile = whole;
    tile.row = row * kBlockEdge;
    tile.cols[0] = col * kBlockEdge;
    tile.cols[1] = second_col < blocks ? second_col * kBlockEdge : -1;
    tiles->push_back(tile);
  };
  const int row = 2 * i;
  if (i == j && i % 2 == 0) append(row, row, row + 2);
  if (i == j && i % 2 == 1) append(row, row - 1, row);
  const bool is_taken = j == i - 1 && j % 2 == 0;
  if (j < i && !is_taken) append(row, 2 * j, 2 * j + 1);
  if (row + 1 < blocks) append(row + 1, 2 * j, 2 * j + 1);
}

void AppendTiles(int n, int steps, int batch, std::vector<SymmetricWork>* tiles) {
  const int blocks = (n + kBlockEdge - 1) / kBlockEdge;
  const int squares = (blocks + 1) / 2;
  const SymmetricWork whole = {batch, 0, {0, -1}, 0, steps, -1};
  for (int group_i = 0; group_i < squares; group_i += kGroup) {
    for (int group_j = 0; group_j <= group_i; group_j += kGroup) {
      for (int i = group_i; i < std::min(squares, group_i + kGroup); ++i) {
        for (int j = group_j; j <= std::min(i, group_j + kGroup - 1); ++j) {
          AppendSquare(i, j, blocks, whole, tiles);
        }
      }
    }
  }
}

}  // namespace

int64_t NumSymmetricTiles(int64_t n) {
  const int64_t blocks = (n + kBlockEdge - 1) / kBlockEdge;
  return (blocks * (blocks + 1) / 2 + 1) / 2;
}

SymmetricSchedule MakeSymmetricSchedule(int64_t n, int64_t k, int64_t batch, int multiprocessors,
                                        bool cuts_last_wave) {
  constexpr int64_t kMost = std::numeric_limits<int>::max() - kTileCols;
  CHECK(n > 0 && n <= kMost && k > 0 && k <= kMost && batch > 0 && multiprocessors > 0)
      << batch << " products of " << n << " x " << k << " on " << multiprocessors;
  const int steps = static_cast<int>((k + kTileK - 1) / kTileK);
  std::vector<SymmetricWork> tiles;
  for (int64_t b = 0; b < batch; ++b) {
    AppendTiles(static_cast<int>(n), steps, static_cast<int>(b), &tiles);
  }
  const int rest = static_cast<int>(tiles.size() % static_cast<size_t>(multiprocessors));
  SymmetricSchedule schedule;
  if (cuts_last_wave && rest > 0)
    schedule.parts = std::max(1, std::min(multiprocessors / rest, steps / kLeastSteps));
  const int parts = schedule.parts;
  const auto whole =
      tiles.end() - static_cast<std::ptrdiff_t>(parts > 1 ? static_cast<size_t>(rest) : 0);
  schedule.work.assign(tiles.begin(), whole);
  for (auto tile = whole; tile != tiles.end(); ++tile) {
    tile->part = static_cast<int>(schedule.cut.size()) * parts;
    schedule.cut.push_back(*tile);
    for (int p = 0; p < parts; ++p) {
      const int begin = static_cast<int>(int64_t{steps} * p / parts);
      int end = static_cast<int>(int64_t{steps} * (p + 1) / parts);
      if (Has(SeededBug::kPartsOverlap)) end = std::min(end + 1, steps);
      schedule.work.push_back(*tile);
      schedule.work.back().first_step = begin;
      schedule.work.back().num_steps = end - begin;
      schedule.work.back().part = tile->part + p;
    }
  }
  return schedule;
}

}  // namespace kaon::kernels::cuda
