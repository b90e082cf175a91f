// The form of each symmetric product on one device. A form other than dense is chosen only if its
// cross-check passed there. Timing chooses between forms only where somebody asks for it (Tune in
// product_tuning.h); otherwise a fixed rule does. Bits depend on the choice. Digest() describes it;
// the device class does not have it, because shapes are not known when a shard starts. Any thread.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_CHOICE_H_
#define KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_CHOICE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "kernels/cuda/products/symmetric_forms.h"
#include "kernels/mutex.h"
#include "kernels/product_form.h"

namespace kaon::kernels::cuda {

struct ChosenForm {
  SymmetricForm form = SymmetricForm::kDense;
  // Microseconds of each form, by its number; 0: not measured, or not correct.
  double microseconds[std::size(kSymmetricForms)] = {};
};

// Shapes are those of KindOf.
class ProductChoice {
 public:
  // Returns the choice for a shape, if there is one.
  absl::optional<ChosenForm> Find(const SymmetricBatch& shape) const;
  void Set(const SymmetricBatch& shape, const ChosenForm& chosen);

  // Returns shapes and forms, as Backend shows them.
  std::vector<ProductForm> Forms() const;
  // Returns one line per shape: dtype, n, k, batch, form, microseconds of each form.
  std::string Text() const;
  // Adds the lines of Text(). INVALID_ARGUMENT names the line.
  absl::Status Read(absl::string_view text);
  // Digest of shapes and forms, not of times.
  uint64_t Digest() const;

 private:
  mutable Mutex mutex_;
  std::map<SymmetricBatch, ChosenForm> chosen_ ABSL_GUARDED_BY(mutex_);
};

// Returns the form that a device with so many multiprocessors should use if nothing was measured.
SymmetricForm FormByRule(const SymmetricProducts& symmetric, const SymmetricBatch& shape,
                         int multiprocessors);

// Digest of a text, the same on every machine.
uint64_t TextDigest(absl::string_view text);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_CHOICE_H_
