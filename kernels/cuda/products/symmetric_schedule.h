// The order of work of a symmetric product on a device. The result consists of blocks of 128 x 128;
// each block on or below the diagonal is computed, or its mirror image. A tile is two blocks of a
// row; at most one tile of a matrix has one. Groups of tiles share operands in the L2 cache. Whole
// waves come first. The tiles of the last wave are cut along K, so that they occupy every
// multiprocessor; a second kernel adds their sums in order. So the bits depend on the shape and the
// number of multiprocessors alone. Values and pure functions; any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_SCHEDULE_H_
#define KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_SCHEDULE_H_

#include <cstdint>
#include <vector>

namespace kaon::kernels::cuda {

// Rows and columns of a block.
inline constexpr int kBlockEdge = 128;
inline constexpr int kTileRows = kBlockEdge;
inline constexpr int kTileCols = 2 * kBlockEdge;
// Columns of an operand that one step multiplies.
inline constexpr int kTileK = 64;

// One tile, or one part of its steps.
struct SymmetricWork {
  int batch;
  int row;
  // First columns of the two blocks, in ascending order; the second is -1 if there is none.
  int cols[2];
  int first_step;
  int num_steps;
  // Place of the sums in the workspace; -1 for a whole tile, which needs none.
  int part;
};

struct SymmetricSchedule {
  std::vector<SymmetricWork> work;
  // The tiles that were cut; `part` is the first of each.
  std::vector<SymmetricWork> cut;
  // Parts of each cut tile.
  int parts = 1;

  uint64_t workspace_bytes() const {
    return cut.size() * static_cast<uint64_t>(parts) * kTileRows * kTileCols * sizeof(float);
  }
};

// Returns the number of tiles of an n x n result.
int64_t NumSymmetricTiles(int64_t n);

// All positive. The product of an n x k and a k x n matrix, `batch` times. Without `cuts_last_wave`
// every tile is whole, so that the bits of a matrix do not depend on the batch.
SymmetricSchedule MakeSymmetricSchedule(int64_t n, int64_t k, int64_t batch, int multiprocessors,
                                        bool cuts_last_wave = true);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_SCHEDULE_H_
