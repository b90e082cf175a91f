// How a backend computes the symmetric products of one shape, for diagnostics. A plain value.
#ifndef KAON_KERNELS_PRODUCT_FORM_H_
#define KAON_KERNELS_PRODUCT_FORM_H_

#include <cstdint>
#include <string>

namespace kaon::kernels {

struct ProductForm {
  // Storage of the matrices: "float32", "bfloat16" or "float16".
  std::string dtype;
  // Products of n x k matrices and their transposes, `batch` of them at once.
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t batch = 0;
  // The backend's name of the form, such as "dense".
  std::string form;

  bool operator==(const ProductForm&) const = default;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_PRODUCT_FORM_H_
