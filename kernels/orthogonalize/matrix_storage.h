// Storage of the iteration's matrices between products, one type per ns_dtype (rule [N6]). A stored
// value is rounded once, and every sum is fp32. Stateless; any thread, as far as the Gemm allows.
#ifndef KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_
#define KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/float_bits.h"
#include "kernels/gemm/gemm.h"
#include "kernels/orthogonalize/lent_memory.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {

// A row-major matrix of fp32 values between products. Movable.
class FloatMatrix {
 public:
  // Allocates the memory; contents are undefined.
  explicit FloatMatrix(int64_t num_elements)
      : num_elements_(num_elements),
        own_(std::make_unique_for_overwrite<float[]>(num_elements)),
        data_(own_.get()) {}
  // Uses memory of the caller for as many elements; it must outlive this.
  FloatMatrix(int64_t num_elements, float* lent) : num_elements_(num_elements), data_(lent) {}

  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t num_elements() const { return num_elements_; }
  bool is_lent() const { return own_ == nullptr; }

 private:
  int64_t num_elements_;
  std::unique_ptr<float[]> own_;
  float* data_;
};

// Each storage type has the following members. Matrix: the type of a matrix. Make: allocates a
// matrix with undefined contents, in the given LentMemory if there is room. StoreTile and LoadTile:
// same as in Gemm; StoreTile rounds.
// Scale: to <- factor from, rounded; AddToDiagonal: adds to the diagonal; both for n x n matrices.
// Multiply: to <- alpha A op(B) + beta addend, rounded. A matrix may use the memory of a larger
// one.
struct Float32Storage {
  using Matrix = FloatMatrix;

  static Matrix Make(const Gemm&, int64_t rows, int64_t cols, LentMemory& lent) {
    float* const room = lent.Take<float>(rows * cols, alignof(float));
    return room == nullptr ? Matrix(rows * cols) : Matrix(rows * cols, room);
  }
  static void StoreTile(const Gemm&, const TilePlace& place, const FloatTile& from, Matrix& to) {
    for (int64_t i = 0; i < place.height(); ++i) {
      std::copy_n(from.values + i * kTileSide, place.width(),
                  to.data() + (place.row + i) * place.cols + place.col);
    }
  }
  static void LoadTile(const Gemm&, const TilePlace& place, const Matrix& from, FloatTile& to) {
    for (int64_t i = 0; i < place.height(); ++i) {
      std::copy_n(from.data() + (place.row + i) * place.cols + place.col, place.width(),
                  to.values + i * kTileSide);
    }
  }
  static void Scale(const Gemm&, int64_t n, const Matrix& from, float factor, Matrix& to) {
    for (int64_t i = 0; i < n * n; ++i) to.data()[i] = factor * from.data()[i];
  }
  static void AddToDiagonal(const Gemm&, int64_t n, float value, Matrix& x) {
    for (int64_t i = 0; i < n; ++i) x.data()[i * n + i] += value;
  }
  static void Multiply(Gemm& gemm, const MatrixProduct& product, const Matrix& a, const Matrix& b,
                       const Matrix* addend, Matrix& to, ProductScratch&) {
    if (product.beta != 0) {
      std::copy_n(addend->data(), product.rows * product.cols, to.data());
    }
    gemm.Multiply(product, a.data(), b.data(), to.data());
  }
};

struct BFloat16Storage {
  using Matrix = StoredMatrix;

  static Matrix Make(const Gemm& gemm, int64_t rows, int64_t cols, LentMemory& lent) {
    const int64_t count = gemm.StoredElements(rows, cols);
    uint16_t* const room = lent.Take<uint16_t>(count, Matrix::kAlignment);
    return room == nullptr ? Matrix(count) : Matrix(count, room);
  }
  static void StoreTile(const Gemm& gemm, const TilePlace& place, const FloatTile& from,
                        Matrix& to) {
    gemm.StoreTile(place, from, to);
  }
  static void LoadTile(const Gemm& gemm, const TilePlace& place, const Matrix& from,
                       FloatTile& to) {
    gemm.LoadTile(place, from, to);
  }
  static void Scale(const Gemm& gemm, int64_t n, const Matrix& from, float factor, Matrix& to) {
    RunVectorized<ScaleEach>(from.data(), factor, to.data(), gemm.StoredElements(n, n));
  }
  static void AddToDiagonal(const Gemm& gemm, int64_t n, float value, Matrix& x) {
    for (int64_t i = 0; i < n; ++i) {
      uint16_t& element = x.data()[gemm.StoredIndex(n, i, i)];
      element = FloatToBFloat16(BFloat16ToFloat(element) + value);
    }
  }
  static void Multiply(Gemm& gemm, const MatrixProduct& product, const Matrix& a, const Matrix& b,
                       const Matrix* addend, Matrix& to, ProductScratch& scratch) {
    gemm.MultiplyStored(product, {a, b, addend}, to, scratch);
  }

 private:
  struct ScaleEach {
    KAON_HOST_DEVICE static void Run(const uint16_t* from, float factor, uint16_t* to, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[i] = FloatToBFloat16(factor * BFloat16ToFloat(from[i]));
    }
  };
};

// The product of two fp16 values is exact in fp32. So an fp32 product of rounded values is an fp16
// product summed in fp32.
struct Float16Storage : Float32Storage {
  static void StoreTile(const Gemm& gemm, const TilePlace& place, const FloatTile& from,
                        Matrix& to) {
    FloatTile rounded = from;
    RunVectorized<RoundEach>(rounded.values, kTileSide * kTileSide);
    Float32Storage::StoreTile(gemm, place, rounded, to);
  }
  static void Scale(const Gemm& gemm, int64_t n, const Matrix& from, float factor, Matrix& to) {
    Float32Storage::Scale(gemm, n, from, factor, to);
    Round(to, n * n);
  }
  static void AddToDiagonal(const Gemm& gemm, int64_t n, float value, Matrix& x) {
    Float32Storage::AddToDiagonal(gemm, n, value, x);
    // Elements off the diagonal are already rounded.
    Round(x, n * n);
  }
  static void Multiply(Gemm& gemm, const MatrixProduct& product, const Matrix& a, const Matrix& b,
                       const Matrix* addend, Matrix& to, ProductScratch& scratch) {
    Float32Storage::Multiply(gemm, product, a, b, addend, to, scratch);
    Round(to, product.rows * product.cols);
  }

 private:
  struct RoundEach {
    KAON_HOST_DEVICE static void Run(float* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) x[i] = Float16ToFloat(FloatToFloat16(x[i]));
    }
  };

  static void Round(Matrix& x, int64_t n) { RunVectorized<RoundEach>(x.data(), n); }
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_MATRIX_STORAGE_H_
