#include "kernels/gemm/tiled_gemm.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kaon::kernels {

namespace {

// Returns the product for the rows of C from tile * kTileRows on; if C is symmetric, up to the
// diagonal.
MatrixProduct TileOf(const MatrixProduct& product, int64_t tile) {
  MatrixProduct of_tile = product;
  const int64_t begin = tile * TiledGemm::kTileRows;
  of_tile.rows = std::min(TiledGemm::kTileRows, product.rows - begin);
  of_tile.c_stride = product.CStride();
  of_tile.symmetric = false;
  if (!product.symmetric) return of_tile;
  of_tile.cols = begin + of_tile.rows;
  // B is then its own transpose, in which the required columns are contiguous rows.
  of_tile.transpose_b = true;
  return of_tile;
}

// Elements in a cache line of C.
constexpr int64_t kLine = 16;
static_assert(TiledGemm::kTileRows % kLine == 0, "tiles begin where lines do");

// to[j][i] <- from[i][j] for `height` rows of one line each, rows `stride` apart. Copies through
// memory in the first-level cache: rows of a large matrix map to few cache sets, so few of them fit
// at once.
void TransposeLines(const float* from, int64_t height, int64_t stride, float* to) {
  float lines[kLine][kLine];
  for (int64_t i = 0; i < height; ++i) std::copy_n(from + i * stride, kLine, lines[i]);
  for (int64_t j = 0; j < kLine; ++j) {
    for (int64_t i = 0; i < height; ++i) to[j * stride + i] = lines[i][j];
  }
}

// Fills the part above the diagonal of the tile's columns from the part below.
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

// Calls multiply(product, a, b, c) for pieces of the inner dimension, each at most `longest`. Adds
// their results in float64; C is rounded once.
template <typename T, typename Multiply>
void AddPieces(const MatrixProduct& product, int64_t longest, const T* a, const T* b, float* c,
               const Multiply& multiply) {
  const int64_t most_cols = std::min(TiledGemm::kSummedCols, product.cols);
  std::vector<double> sums(product.rows * most_cols);
  std::vector<float> piece_sums(product.rows * most_cols);
  for (int64_t col = 0; col < product.cols; col += most_cols) {
    MatrixProduct piece = product;
    piece.cols = std::min(most_cols, product.cols - col);
    piece.alpha = 1;
    piece.beta = 0;
    piece.a_stride = product.AStride();
    piece.b_stride = product.BStride();
    piece.c_stride = 0;
    piece.symmetric = false;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t k = 0; k < product.inner; k += longest) {
      piece.inner = std::min(longest, product.inner - k);
      const T* from =
          product.transpose_b ? b + col * piece.b_stride + k : b + k * piece.b_stride + col;
      multiply(piece, a + k, from, piece_sums.data());
      for (int64_t i = 0; i < piece.rows * piece.cols; ++i) sums[i] += piece_sums[i];
    }
    for (int64_t i = 0; i < piece.rows; ++i) {
      for (int64_t j = 0; j < piece.cols; ++j) {
        float& to = c[i * product.CStride() + col + j];
        const double sum = product.alpha * sums[i * piece.cols + j];
        to = static_cast<float>(product.beta == 0 ? sum : sum + double{product.beta} * to);
      }
    }
  }
}

// Calls multiply(product, a, b, c) for each tile of C, and mirrors a symmetric result.
template <typename T, typename Multiply>
void MultiplyTiles(ThreadPool& pool, const MatrixProduct& product, int64_t longest, const T* a,
                   const T* b, float* c, const Multiply& multiply) {
  const auto run = [&](const MatrixProduct& tile, const T* tile_a, float* tile_c) {
    if (tile.inner <= longest) return multiply(tile, tile_a, b, tile_c);
    AddPieces(tile, longest, tile_a, b, tile_c, multiply);
  };
  if (product.rows <= TiledGemm::kTileRows) return run(product, a, c);
  const int64_t tiles = (product.rows + TiledGemm::kTileRows - 1) / TiledGemm::kTileRows;
  // In reverse order: the last tiles of a symmetric result are the largest.
  pool.ParallelFor(tiles, [&](int64_t i) {
    const int64_t tile = tiles - 1 - i;
    const int64_t begin = tile * TiledGemm::kTileRows;
    run(TileOf(product, tile), a + begin * product.AStride(), c + begin * product.CStride());
  });
  if (!product.symmetric) return;
  pool.ParallelFor(tiles, [&](int64_t tile) { Mirror(product, tile, c); });
}

}  // namespace

TiledGemm::TiledGemm(std::unique_ptr<Gemm> gemm, ThreadPool& pool)
    : gemm_(std::move(gemm)), pool_(pool) {}

void TiledGemm::Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) {
  const int64_t longest = product.rows < kManyRows ? kLongestSumOfFewRows : kLongestSum;
  MultiplyTiles(pool_, product, longest, a, b, c,
                [this](const MatrixProduct& piece, const float* piece_a, const float* piece_b,
                       float* piece_c) { gemm_->Multiply(piece, piece_a, piece_b, piece_c); });
}

void TiledGemm::MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                                 float* c) {
  MultiplyTiles(
      pool_, product, kLongestBFloat16Sum, a, b, c,
      [this](const MatrixProduct& piece, const uint16_t* piece_a, const uint16_t* piece_b,
             float* piece_c) { gemm_->MultiplyBFloat16(piece, piece_a, piece_b, piece_c); });
}

}  // namespace kaon::kernels
