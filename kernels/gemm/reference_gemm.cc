#include "kernels/gemm/reference_gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

// Rows of a tile of C computed at once: its partial sums stay in registers, and a loaded piece of B
// serves several rows.
constexpr int64_t kTileRows = 4;
constexpr int64_t kPanelCols = 32;
// Sums of this many products are added up, which limits the error of long sums.
constexpr int64_t kInnerBlock = 256;

// out[j] <- sum over k of a[k] panel[k][j], in ascending blocks, for `rows` rows of A and of out.
template <int64_t rows>
struct RowsTimesPanel {
  KAON_HOST_DEVICE static void Run(const float* a, int64_t a_stride, const float* panel,
                                   int64_t inner, float* out) {
    float total[rows][kPanelCols] = {};
    for (int64_t begin = 0; begin < inner; begin += kInnerBlock) {
      const int64_t end = begin + kInnerBlock < inner ? begin + kInnerBlock : inner;
      float sum[rows][kPanelCols] = {};
      for (int64_t k = begin; k < end; ++k) {
        const float* row = panel + k * kPanelCols;
        for (int64_t i = 0; i < rows; ++i) {
          const float x = a[i * a_stride + k];
          for (int64_t j = 0; j < kPanelCols; ++j) sum[i][j] = std::fma(x, row[j], sum[i][j]);
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < kPanelCols; ++j) total[i][j] += sum[i][j];
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < kPanelCols; ++j) out[i * kPanelCols + j] = total[i][j];
    }
  }
};

// Packs columns [begin, begin + count) of op(B) as (inner, kPanelCols), padded with zeros.
void PackPanel(const MatrixProduct& p, const float* b, int64_t begin, absl::Span<float> panel) {
  const int64_t count = std::min(kPanelCols, p.cols - begin);
  std::fill(panel.begin(), panel.end(), 0.0f);
  for (int64_t k = 0; k < p.inner; ++k) {
    for (int64_t j = 0; j < count; ++j) {
      panel[k * kPanelCols + j] =
          p.transpose_b ? b[(begin + j) * p.BStride() + k] : b[k * p.BStride() + begin + j];
    }
  }
}

void StoreRow(const MatrixProduct& p, const float* sums, int64_t count, float* out) {
  for (int64_t j = 0; j < count; ++j) {
    out[j] = p.beta == 0 ? p.alpha * sums[j] : std::fma(p.alpha, sums[j], p.beta * out[j]);
  }
}

}  // namespace

void ReferenceGemm::Multiply(const MatrixProduct& product, const float* a, const float* b,
                             float* c) {
  std::vector<float> panel(product.inner * kPanelCols);
  float sums[kTileRows * kPanelCols];
  for (int64_t begin = 0; begin < product.cols; begin += kPanelCols) {
    PackPanel(product, b, begin, absl::MakeSpan(panel));
    const float* packed = panel.data();
    const int64_t count = std::min(kPanelCols, product.cols - begin);
    int64_t tile = 0;
    for (int64_t i = 0; i < product.rows; i += tile) {
      tile = product.rows - i >= kTileRows ? kTileRows : 1;
      const float* rows = a + i * product.AStride();
      if (tile == kTileRows) {
        RunVectorized<RowsTimesPanel<kTileRows>>(rows, product.AStride(), packed, product.inner,
                                                 &sums[0]);
      } else {
        RunVectorized<RowsTimesPanel<1>>(rows, product.AStride(), packed, product.inner, &sums[0]);
      }
      for (int64_t row = 0; row < tile; ++row) {
        StoreRow(product, &sums[row * kPanelCols], count,
                 c + (i + row) * product.CStride() + begin);
      }
    }
  }
}

void ReferenceGemm::MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a,
                                     const uint16_t* b, float* c) {
  MultiplyWidened(*this, product, a, b, c);
}

}  // namespace kaon::kernels
