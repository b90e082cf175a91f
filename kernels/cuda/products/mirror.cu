#include <glog/logging.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/mirror.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kThreads = 256;
// Elements of one access of 8 bytes.
constexpr int kWidth = 4;
constexpr int kVectorsPerRow = kTile / kWidth;
constexpr int kRowsAtOnce = kThreads / kVectorsPerRow;

struct alignas(8) Vector {
  uint16_t values[kWidth];
};

struct MirrorArguments {
  uint16_t* x;
  int64_t n;
  int64_t pitch;
  int64_t stride;
  // Tiles of the lower triangle of one matrix.
  int64_t tiles;
};

// One column more, so that the columns that a warp reads lie in different banks.
struct Tile {
  uint16_t values[kTile][kTile + 2];
};

// Returns the row of tile `i`, where row r of the triangle has tiles r (r + 1) / 2 and up.
KAON_DEVICE int64_t RowOfTile(int64_t i) {
  int64_t row = static_cast<int64_t>((sqrt(8.0 * static_cast<double>(i) + 1.0) - 1.0) / 2.0);
  while (row * (row + 1) / 2 > i) --row;
  while ((row + 1) * (row + 2) / 2 <= i) ++row;
  return row;
}

// A block reads one tile of the lower triangle and writes its transpose. Rows begin at multiples of
// 16 bytes, so that an access may reach into the padding of a row.
__global__ void MirrorKernel(MirrorArguments args) {
  Tile& tile = SharedMemory<Tile>();
  const int64_t i = int64_t{blockIdx.x} % args.tiles;
  uint16_t* const x = args.x + int64_t{blockIdx.x} / args.tiles * args.stride;
  const int64_t tile_row = RowOfTile(i);
  const int64_t row0 = tile_row * kTile;
  const int64_t col0 = (i - tile_row * (tile_row + 1) / 2) * kTile;
  const int at_row = static_cast<int>(threadIdx.x) / kVectorsPerRow;
  const int at_col = static_cast<int>(threadIdx.x) % kVectorsPerRow * kWidth;
  for (int r = at_row; r < kTile; r += kRowsAtOnce) {
    if (row0 + r >= args.n || col0 + at_col >= args.n) continue;
    const Vector read =
        *reinterpret_cast<const Vector*>(x + (row0 + r) * args.pitch + col0 + at_col);
    for (int j = 0; j < kWidth; ++j) tile.values[r][at_col + j] = read.values[j];
  }
  __syncthreads();
  // Row r of the transpose is column r of the tile.
  for (int r = at_row; r < kTile; r += kRowsAtOnce) {
    const int64_t row = col0 + r;
    for (int j = 0; j < kWidth; ++j) {
      const int64_t col = row0 + at_col + j;
      if (col < args.n && row < col) x[row * args.pitch + col] = tile.values[at_col + j][r];
    }
  }
}

}  // namespace

void Mirror(Stream& stream, const SquareBatch& squares, void* x) {
  CHECK(ElementBytes(squares.dtype) == 2) << "elements of 16 bits";
  const BatchLayout layout = LayoutOf(squares.dtype, squares.n, squares.n);
  const int64_t side = (squares.n + kTile - 1) / kTile;
  const int64_t tiles = side * (side + 1) / 2;
  const MirrorArguments arguments = {static_cast<uint16_t*>(x), squares.n, layout.pitch,
                                     layout.stride, tiles};
  const int64_t blocks = squares.batch * tiles - (Has(SeededBug::kLastBlockNotMirrored) ? 1 : 0);
  Launch(stream, {.blocks = blocks, .threads = kThreads}, MirrorKernel, arguments);
}

}  // namespace kaon::kernels::cuda
