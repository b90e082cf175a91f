// Matrix products under the orthogonalization: one interface, so that what does them is a choice
// (reference, oneDNN, AMX tiles) and can be cross-checked. Operands are row-major, but for stored
// matrices. Owned by its backend; safe from several threads at once. Results depend on
// the arguments alone, never on the number of threads.
#ifndef KAON_KERNELS_GEMM_GEMM_H_
#define KAON_KERNELS_GEMM_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"

namespace kaon::kernels {

// C <- alpha A op(B) + beta C, with A (rows, inner), op(B) (inner, cols) and C (rows, cols). With
// beta = 0, C is not read.
struct MatrixProduct {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t inner = 0;
  // B is stored as (cols, inner).
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  // A op(B) and C are symmetric, and B too without transpose_b: half of the result may be computed
  // and mirrored.
  bool symmetric = false;
  // Elements from one stored row to the next, at least the row's own; 0 = rows follow one another.
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;

  // Elements of a row of B as it is stored.
  int64_t BCols() const { return transpose_b ? inner : cols; }
  int64_t AStride() const { return a_stride > 0 ? a_stride : inner; }
  int64_t BStride() const { return b_stride > 0 ? b_stride : BCols(); }
  int64_t CStride() const { return c_stride > 0 ? c_stride : cols; }
};

// bf16 values between products, in the order of elements that the Gemm which stored them works
// fastest on; its memory starts a cache line. Movable.
class StoredMatrix {
 public:
  static constexpr size_t kAlignment = 64;

  StoredMatrix() = default;
  // Contents are undefined.
  explicit StoredMatrix(int64_t num_elements);
  // In memory for as many elements, so aligned, that outlives it.
  StoredMatrix(int64_t num_elements, uint16_t* lent) : num_elements_(num_elements), data_(lent) {}

  uint16_t* data() { return data_; }
  const uint16_t* data() const { return data_; }
  int64_t num_elements() const { return num_elements_; }
  bool is_lent() const { return lines_ == nullptr; }

 private:
  struct alignas(kAlignment) Line {
    uint16_t values[32];
  };

  int64_t num_elements_ = 0;
  std::unique_ptr<Line[]> lines_;
  uint16_t* data_ = nullptr;
};

// Of one product of stored matrices; the addend is only read with beta != 0.
struct StoredOperands {
  const StoredMatrix& a;
  const StoredMatrix& b;
  const StoredMatrix* addend = nullptr;
};

// Memory that products use one after the other; it grows as needed and its contents mean nothing.
struct ProductScratch {
  std::vector<float> wide;
  StoredMatrix packed;
};

// Matrices are stored and loaded by tiles: part of a row of each matrix stays in the first cache,
// whichever way round it is read.
inline constexpr int64_t kTileSide = 32;

// A tile of a matrix (rows, cols), from (row, col) on, both multiples of kTileSide.
struct TilePlace {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row = 0;
  int64_t col = 0;

  int64_t height() const { return std::min(kTileSide, rows - row); }
  int64_t width() const { return std::min(kTileSide, cols - col); }
};

struct alignas(64) FloatTile {
  float values[kTileSide * kTileSide];
};

class Gemm {
 public:
  virtual ~Gemm() = default;

  // "amx", "onednn", "reference".
  virtual absl::string_view name() const = 0;

  // fp32 storage. C overlaps neither operand; A may be B.
  virtual void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) = 0;

  // bf16 storage of A and B, products accumulated in fp32, C fp32: the caller rounds what it stores
  // ([N6]).
  virtual void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                                float* c) = 0;

  // What the iterations of one matrix are made of. Row-major unless a Gemm overrides all of them.
  // Elements that a matrix takes, at least rows * cols, and where one of them lies.
  virtual int64_t StoredElements(int64_t rows, int64_t cols) const;
  virtual int64_t StoredIndex(int64_t cols, int64_t row, int64_t col) const;
  // The tile at `place` of `to` <- `from`, rounded to nearest even; and the other way round,
  // widened. What of the tile is outside the matrix is left alone. In the calling thread.
  virtual void StoreTile(const TilePlace& place, const FloatTile& from, StoredMatrix& to) const;
  virtual void LoadTile(const TilePlace& place, const StoredMatrix& from, FloatTile& to) const;
  // to <- alpha A op(B) + beta addend, summed in fp32 and rounded once ([N6]). `to` is none of the
  // operands.
  virtual void MultiplyStored(const MatrixProduct& product, const StoredOperands& operands,
                              StoredMatrix& to, ProductScratch& scratch);
};

// Computes a product of bf16 operands by `gemm`'s fp32 product: widening is exact.
void MultiplyWidened(Gemm& gemm, const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                     float* c);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_GEMM_H_
