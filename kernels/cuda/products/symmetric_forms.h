// The ways to compute a batch of symmetric products D <- alpha A B^T + beta C without its upper
// half. A and B are (n, k), and C is symmetric. All matrices are laid out by LayoutOf (products.h).
// D is exactly symmetric, except in dense form. Any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_FORMS_H_
#define KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_FORMS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/products/symmetric_product.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda {

enum class SymmetricForm : uint8_t {
  // The library's product of all elements.
  kDense,
  // The library's products of the lower triangle in blocks, then mirrored.
  kBlocks,
  // Our own kernel (symmetric_product.h).
  kWgmma
};

inline constexpr SymmetricForm kSymmetricForms[] = {SymmetricForm::kDense, SymmetricForm::kBlocks,
                                                    SymmetricForm::kWgmma};

// Returns "dense", "blocks" or "wgmma".
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
  // The arguments outlive this, and no stream may still have work of it when it ends.
  SymmetricProducts(Device& device, Products& products) : device_(device), products_(products) {}

  bool Supports(SymmetricForm form, const SymmetricBatch& shape) const;
  // Fails as Products::Find does. UNIMPLEMENTED, too, for a form that Supports rejects.
  // RESOURCE_EXHAUSTED.
  absl::Status Find(SymmetricForm form, const SymmetricBatch& shape);
  // D is none of the other operands, except C in dense form.
  void Multiply(const ProductStream& on, SymmetricForm form, const SymmetricBatch& shape,
                float alpha, float beta, const ProductOperands& operands);

 private:
  void MultiplyBlocks(const ProductStream& on, const SymmetricBatch& shape, float alpha, float beta,
                      const ProductOperands& operands);

  // Makes the plan of our own kernel.
  absl::Status FindWgmma(const SymmetricBatch& shape);
  void MultiplyWgmma(const ProductStream& on, const SymmetricBatch& shape, float alpha, float beta,
                     const ProductOperands& operands);

  Device& device_;
  Products& products_;

  Mutex mutex_;
  // Entries are never removed, so that references to them stay valid.
  std::map<SymmetricBatch, std::unique_ptr<SymmetricProduct>> wgmma_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_SYMMETRIC_FORMS_H_
