// Matrix products under the orthogonalization: one interface, so that the library doing them is a
// choice (reference, oneDNN) and can be cross-checked. Operands are row-major and dense. Owned by
// its backend; safe from several threads at once. Results depend on the arguments alone, never on
// the number of threads.
#ifndef KAON_KERNELS_GEMM_H_
#define KAON_KERNELS_GEMM_H_

#include <cstdint>

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
  // Elements from one row of C to the next, at least cols; 0 = cols.
  int64_t c_stride = 0;

  int64_t CStride() const { return c_stride > 0 ? c_stride : cols; }
};

class Gemm {
 public:
  virtual ~Gemm() = default;

  // "onednn", "reference".
  virtual absl::string_view name() const = 0;

  // fp32 storage. C overlaps neither operand; A may be B.
  virtual void Multiply(const MatrixProduct& product, const float* a, const float* b, float* c) = 0;

  // bf16 storage of A and B, products accumulated in fp32, C fp32: the caller rounds what it stores
  // ([N6]).
  virtual void MultiplyBFloat16(const MatrixProduct& product, const uint16_t* a, const uint16_t* b,
                                float* c) = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GEMM_H_
