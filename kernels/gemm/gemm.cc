#include "kernels/gemm/gemm.h"

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace kaon::kernels {

StoredMatrix::StoredMatrix(int64_t num_elements)
    : num_elements_(num_elements),
      lines_(std::make_unique_for_overwrite<Line[]>((num_elements + 31) / 32)),
      data_(lines_[0].values) {}

int64_t Gemm::StoredElements(int64_t rows, int64_t cols) const { return rows * cols; }

int64_t Gemm::StoredIndex(int64_t cols, int64_t row, int64_t col) const { return row * cols + col; }

void Gemm::StoreTile(const TilePlace& place, const FloatTile& from, StoredMatrix& to) const {
  for (int64_t i = 0; i < place.height(); ++i) {
    uint16_t* row = to.data() + (place.row + i) * place.cols + place.col;
    FromFloat(DType::kBFloat16, absl::MakeConstSpan(from.values + i * kTileSide, place.width()),
              reinterpret_cast<std::byte*>(row));
  }
}

void Gemm::LoadTile(const TilePlace& place, const StoredMatrix& from, FloatTile& to) const {
  for (int64_t i = 0; i < place.height(); ++i) {
    const uint16_t* row = from.data() + (place.row + i) * place.cols + place.col;
    ToFloat(DType::kBFloat16, reinterpret_cast<const std::byte*>(row),
            absl::MakeSpan(to.values + i * kTileSide, place.width()));
  }
}

void Gemm::MultiplyStored(const MatrixProduct& product, const StoredOperands& operands,
                          StoredMatrix& to, ProductScratch& scratch) {
  const int64_t n = product.rows * product.cols;
  std::vector<float>& wide = scratch.wide;
  wide.resize(n);
  if (product.beta != 0) {
    ToFloat(DType::kBFloat16, reinterpret_cast<const std::byte*>(operands.addend->data()),
            absl::MakeSpan(wide));
  }
  MultiplyBFloat16(product, operands.a.data(), operands.b.data(), wide.data());
  FromFloat(DType::kBFloat16, wide, reinterpret_cast<std::byte*>(to.data()));
}

void MultiplyWidened(Gemm& gemm, const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                     float* c) {
  const auto widen = [](const uint16_t* from, int64_t rows, int64_t cols, int64_t stride) {
    std::vector<float> wide(rows * cols);
    for (int64_t i = 0; i < rows; ++i) {
      ToFloat(DType::kBFloat16, reinterpret_cast<const std::byte*>(from + i * stride),
              absl::MakeSpan(wide).subspan(i * cols, cols));
    }
    return wide;
  };
  const int64_t b_rows = product.transpose_b ? product.cols : product.inner;
  const std::vector<float> wide_a = widen(a, product.rows, product.inner, product.AStride());
  const std::vector<float> wide_b = widen(b, b_rows, product.BCols(), product.BStride());
  MatrixProduct dense = product;
  dense.a_stride = 0;
  dense.b_stride = 0;
  gemm.Multiply(dense, wide_a.data(), wide_b.data(), c);
}

}  // namespace kaon::kernels
