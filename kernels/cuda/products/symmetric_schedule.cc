#include "kernels/cuda/products/symmetric_schedule.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

// Squares of kTileCols on an edge of a group.
constexpr int kGroup = 8;
// Shorter parts cost more in their epilogue than they save.
constexpr int kLeastSteps = 4;

void AppendTiles(int n, int steps, int batch, std::vector<SymmetricWork>* tiles) {
  const int squares = (n + kTileCols - 1) / kTileCols;
  const auto append_square = [&](int i, int j) {
    for (int row = i * kTileCols; row < std::min(n, (i + 1) * kTileCols); row += kTileRows) {
      tiles->push_back({batch, row, j * kTileCols, 0, steps, -1});
    }
  };
  for (int group_i = 0; group_i < squares; group_i += kGroup) {
    for (int group_j = 0; group_j <= group_i; group_j += kGroup) {
      for (int i = group_i; i < std::min(squares, group_i + kGroup); ++i) {
        for (int j = group_j; j <= std::min(i, group_j + kGroup - 1); ++j) append_square(i, j);
      }
    }
  }
}

}  // namespace

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
      schedule.work.push_back(
          {tile->batch, tile->row, tile->col, begin, end - begin, tile->part + p});
    }
  }
  return schedule;
}

}  // namespace kaon::kernels::cuda
