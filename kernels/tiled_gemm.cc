#include "kernels/tiled_gemm.h"

#include <algorithm>
#include <utility>

namespace kaon::kernels {

namespace {

// The rows of C from tile * kTileRows on, to the diagonal if it is symmetric.
MatrixProduct TileOf(const MatrixProduct& product, int64_t tile) {
  MatrixProduct of_tile = product;
  const int64_t begin = tile * TiledGemm::kTileRows;
  of_tile.rows = std::min(TiledGemm::kTileRows, product.rows - begin);
  of_tile.c_stride = product.CStride();
  of_tile.symmetric = false;
  if (!product.symmetric) return of_tile;
  of_tile.cols = begin + of_tile.rows;
  // B is its own transpose then, of which the columns needed lie side by side.
  of_tile.transpose_b = true;
  return of_tile;
}

// A cache line of C.
constexpr int64_t kLine = 16;
static_assert(TiledGemm::kTileRows % kLine == 0, "tiles begin where lines do");

// to[j][i] <- from[i][j] for `height` rows of a line each, rows `stride` apart. By way of memory in
// the first cache: rows of a large matrix lie so that few of them have room there at once.
void TransposeLines(const float* from, int64_t height, int64_t stride, float* to) {
  float lines[kLine][kLine];
  for (int64_t i = 0; i < height; ++i) std::copy_n(from + i * stride, kLine, lines[i]);
  for (int64_t j = 0; j < kLine; ++j) {
    for (int64_t i = 0; i < height; ++i) to[j * stride + i] = lines[i][j];
  }
}

// What is above the diagonal of the tile's columns, from what is below.
void Mirror(const MatrixProduct& product, int64_t tile, float* c) {
  const int64_t stride = product.CStride();
  const int64_t begin = tile * TiledGemm::kTileRows;
  const int64_t end = std::min(begin + TiledGemm::kTileRows, product.rows);
  for (int64_t row = begin; row < end; row += kLine) {
    const int64_t height = std::min(kLine, end - row);
    for (int64_t col = 0; col < row; col += kLine) {
      TransposeLines(c + row * stride + col, height, stride, c + col * stride + row);
    }
    for (int64_t i = row; i < row + height; ++i) {
      for (int64_t j = row; j < i; ++j) c[j * stride + i] = c[i * stride + j];
    }
  }
}

// multiply(product of a tile, its rows of A, its rows of C) for each, then what is symmetric.
template <typename T, typename Multiply>
void ForEachTile(ThreadPool& pool, const MatrixProduct& product, const T* a, float* c,
                 const Multiply& multiply) {
  const int64_t tiles = (product.rows + TiledGemm::kTileRows - 1) / TiledGemm::kTileRows;
  // Backwards: of a symmetric result the last tiles are the largest.
  pool.ParallelFor(tiles, [&](int64_t i) {
    const int64_t tile = tiles - 1 - i;
    const int64_t begin = tile * TiledGemm::kTileRows;
    multiply(TileOf(product, tile), a + begin * product.inner, c + begin * product.CStride());
  });
  if (!product.symmetric) return;
  pool.ParallelFor(tiles, [&](int64_t tile) { Mirror(product, tile, c); });
}

}  // namespace

TiledGemm::TiledGemm(std::unique_ptr<Gemm> gemm, ThreadPool& pool)
    : gemm_(std::move(gemm)), pool_(pool) {}

void TiledGemm::Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) {
  if (product.rows <= kTileRows) return gemm_->Multiply(product, a, b, c);
  ForEachTile(pool_, product, a, c,
              [&](const MatrixProduct& tile, const float* tile_a, float* tile_c) {
                gemm_->Multiply(tile, tile_a, b, tile_c);
              });
}

void TiledGemm::MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                                 float* c) {
  if (product.rows <= kTileRows) return gemm_->MultiplyBFloat16(product, a, b, c);
  ForEachTile(pool_, product, a, c,
              [&](const MatrixProduct& tile, const uint16_t* tile_a, float* tile_c) {
                gemm_->MultiplyBFloat16(tile, tile_a, b, tile_c);
              });
}

}  // namespace kaon::kernels
