// The ways to compute a batch of symmetric products D <- alpha A B^T + beta C without its upper
// half. A and B are (n, k), and C is symmetric. All matrices are laid out by LayoutOf (products.h).
// D is exactly symmetric, except in dense form. Any thread.
#ifndef KAON_KERNELS_CUDA_SYMMETRIC_FORMS_H_
#define KAON_KERNELS_CUDA_SYMMETRIC_FORMS_H_

#include <compare>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/products.h"

namespace kaon::kernels::cuda {

enum class SymmetricForm : uint8_t {
  // The library's product of all elements.
  kDense,
  // The library's products of the lower triangle in blocks, then mirrored.
  kBlocks
};

inline constexpr SymmetricForm kSymmetricForms[] = {SymmetricForm::kDense, SymmetricForm::kBlocks};

// Returns "dense" or "blocks".
absl::string_view NameOf(SymmetricForm form);

struct SymmetricBatch {
  NsDType dtype = NsDType::kBFloat16;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;

  auto operator<=>(const SymmetricBatch&) const = default;
};

// Returns the batch that stands for all of its size: forms are chosen for it (TypicalBatch).
inline SymmetricBatch KindOf(SymmetricBatch batch) {
  batch.batch = TypicalBatch(batch.n, batch.n);
  return batch;
}

class SymmetricProducts {
 public:
  // `products` outlives this.
  explicit SymmetricProducts(Products& products) : products_(products) {}

  bool Supports(SymmetricForm form, const SymmetricBatch& shape) const;
  // As in Products. UNIMPLEMENTED, too, for a form that Supports rejects.
  absl::Status Find(SymmetricForm form, const SymmetricBatch& shape);
  // D is none of the other operands, except C in dense form.
  void Multiply(const ProductStream& on, SymmetricForm form, const SymmetricBatch& shape,
                float alpha, float beta, const ProductOperands& operands);

 private:
  void MultiplyBlocks(const ProductStream& on, const SymmetricBatch& shape, float alpha, float beta,
                      const ProductOperands& operands);

  Products& products_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_SYMMETRIC_FORMS_H_
