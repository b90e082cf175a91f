// Matrix products for the orthogonalization. One interface has several implementations (reference,
// oneDNN, AMX tiles), so that tests can compare them. Operands are row-major, except stored
// matrices. The backend owns a Gemm. Several threads may use it concurrently. Results depend on the
// arguments alone, never on the number of threads.
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
  // A op(B) and C are symmetric; without transpose_b, B is symmetric too. The Gemm may compute half
  // of the result and mirror it.
  bool symmetric = false;
  // Elements from one stored row to the next, at least the row length; 0: rows are contiguous.
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;

  // Returns the row length of B as stored, in elements.
  int64_t BCols() const { return transpose_b ? inner : cols; }
  int64_t AStride() const { return a_stride > 0 ? a_stride : inner; }
  int64_t BStride() const { return b_stride > 0 ? b_stride : BCols(); }
  int64_t CStride() const { return c_stride > 0 ? c_stride : cols; }
};

// A matrix of bf16 values between products. The Gemm that stored it chooses the order of its
// elements. Its memory starts at a cache line. Movable.
class StoredMatrix {
 public:
  static constexpr size_t kAlignment = 64;

  StoredMatrix() = default;
  // Allocates the memory; contents are undefined.
  explicit StoredMatrix(int64_t num_elements);
  // Uses memory of the caller for as many elements. It has the same alignment and must outlive
  // this.
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

// Operands of one product of stored matrices. The addend is read only if beta != 0.
struct StoredOperands {
  const StoredMatrix& a;
  const StoredMatrix& b;
  const StoredMatrix* addend = nullptr;
};

// Scratch memory that consecutive products share. It grows as needed; its contents have no meaning.
struct ProductScratch {
  std::vector<float> wide;
  StoredMatrix packed;
};

// Side of the tiles in which matrices are stored and loaded. Part of a row of each matrix stays in
// the first-level cache, for row and column access alike.
inline constexpr int64_t kTileSide = 32;

// A tile of a matrix (rows, cols). It starts at (row, col), both multiples of kTileSide.
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

  // Returns "amx", "onednn" or "reference".
  virtual absl::string_view name() const = 0;

  // Multiplies fp32 matrices. C overlaps neither operand; A may be B.
  virtual void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) = 0;

  // Multiplies bf16 matrices A and B. Products are accumulated in fp32, and C is fp32: the caller
  // rounds what it stores (rule [N6]).
  virtual void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                                float* c) = 0;

  // Operations on the stored matrices of the iteration. The order is row-major unless a Gemm
  // overrides all of them.
  // StoredElements returns the size of a matrix in elements, at least rows * cols; StoredIndex the
  // index of one element.
  virtual int64_t StoredElements(int64_t rows, int64_t cols) const;
  virtual int64_t StoredIndex(int64_t cols, int64_t row, int64_t col) const;
  // Writes `from` into the tile of `to` at `place`, rounded to nearest even; LoadTile reads a tile
  // and widens it. Tile elements outside the matrix are left alone. Both run in the calling thread.
  virtual void StoreTile(const TilePlace& place, const FloatTile& from, StoredMatrix& to) const;
  virtual void LoadTile(const TilePlace& place, const StoredMatrix& from, FloatTile& to) const;
  // to <- alpha A op(B) + beta addend, summed in fp32 and rounded once (rule [N6]). `to` is none of
  // the operands.
  virtual void MultiplyStored(const MatrixProduct& product, const StoredOperands& operands,
                              StoredMatrix& to, ProductScratch& scratch);
};

// Multiplies bf16 operands by `gemm`'s fp32 product: widening is exact.
void MultiplyWidened(Gemm& gemm, const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                     float* c);

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_GEMM_H_
