// A product of stored matrices, from row-major operands to a row-major result, that every Gemm is
// checked with. Used by tests only; pure functions.
#ifndef KAON_TESTS_KERNELS_GEMM_STORED_PRODUCT_H_
#define KAON_TESTS_KERNELS_GEMM_STORED_PRODUCT_H_

#include <vector>

#include "kernels/gemm/gemm.h"
#include "tests/kernels/gemm/gemm_cases.h"

namespace kaon::kernels {

// Calls visit(tile, element of the tile, element of a row-major matrix) for each element of the
// matrix.
template <typename Visit>
void ForEachElement(const TilePlace& tile, const Visit& visit) {
  for (int64_t i = 0; i < tile.height(); ++i) {
    for (int64_t j = 0; j < tile.width(); ++j) {
      visit(i * kTileSide + j, (tile.row + i) * tile.cols + tile.col + j);
    }
  }
}

inline StoredMatrix StoredIn(const Gemm& gemm, int64_t rows, int64_t cols,
                             const std::vector<float>& from) {
  StoredMatrix to(gemm.StoredElements(rows, cols));
  for (int64_t row = 0; row < rows; row += kTileSide) {
    for (int64_t col = 0; col < cols; col += kTileSide) {
      const TilePlace place = {rows, cols, row, col};
      FloatTile tile;
      ForEachElement(place, [&](int64_t at, int64_t element) { tile.values[at] = from[element]; });
      gemm.StoreTile(place, tile, to);
    }
  }
  return to;
}

inline std::vector<float> LoadedFrom(const Gemm& gemm, int64_t rows, int64_t cols,
                                     const StoredMatrix& from) {
  std::vector<float> to(rows * cols);
  for (int64_t row = 0; row < rows; row += kTileSide) {
    for (int64_t col = 0; col < cols; col += kTileSide) {
      const TilePlace place = {rows, cols, row, col};
      FloatTile tile;
      gemm.LoadTile(place, from, tile);
      ForEachElement(place, [&](int64_t at, int64_t element) { to[element] = tile.values[at]; });
    }
  }
  return to;
}

inline std::vector<float> StoredProduct(Gemm& gemm, const GemmCase& c) {
  const MatrixProduct& p = c.product;
  const StoredMatrix a = StoredIn(gemm, p.rows, p.inner, c.a);
  const StoredMatrix b =
      p.transpose_b ? StoredIn(gemm, p.cols, p.inner, c.b) : StoredIn(gemm, p.inner, p.cols, c.b);
  const StoredMatrix addend = StoredIn(gemm, p.rows, p.cols, c.c);
  StoredMatrix result(gemm.StoredElements(p.rows, p.cols));
  ProductScratch scratch;
  gemm.MultiplyStored(p, {a, b, &addend}, result, scratch);
  return LoadedFrom(gemm, p.rows, p.cols, result);
}

// Allows half a unit in the last place of bf16, and the error of the sum before it is rounded.
inline void ExpectRoundedOnce(const GemmCase& c, const std::vector<float>& result) {
  GemmCase rounded = c;
  for (float& x : rounded.c) x = RoundTo(DType::kBFloat16, x);
  const std::vector<double> expected = rounded.Expected();
  for (size_t i = 0; i < result.size(); ++i) {
    EXPECT_NEAR(result[i], expected[i], 0x1.02p-8 * std::abs(expected[i]) + 1e-4)
        << c.product.rows << "x" << c.product.cols << " over " << c.product.inner << " at " << i;
  }
}

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_GEMM_STORED_PRODUCT_H_
