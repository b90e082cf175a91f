// View of a gradient in its wire dtype, without a copy. A value that does not own the memory. Any
// thread.
#ifndef KAON_KERNELS_GRAD_VIEW_H_
#define KAON_KERNELS_GRAD_VIEW_H_

#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace kaon::kernels {

class GradView {
 public:
  GradView() = default;
  // Implicit: a gradient is fp32 by default.
  GradView(absl::Span<const float> floats)
      : bytes_(reinterpret_cast<const std::byte*>(floats.data())), size_(floats.size()) {}
  GradView(const std::vector<float>& floats) : GradView(absl::MakeConstSpan(floats)) {}
  // `bytes` has whole elements of `dtype`; fp32 must be aligned for float.
  GradView(DType dtype, absl::Span<const std::byte> bytes)
      : dtype_(dtype), bytes_(bytes.data()), size_(bytes.size() / SizeOf(dtype)) {}

  DType dtype() const { return dtype_; }
  // Returns the number of elements.
  size_t size() const { return size_; }
  const std::byte* at(int64_t element) const {
    return bytes_ + element * static_cast<int64_t>(SizeOf(dtype_));
  }
  // Returns the fp32 elements (CHECK).
  absl::Span<const float> floats() const {
    CHECK(dtype_ == DType::kFloat32) << "gradient is " << NameOf(dtype_) << ", not float32";
    return {reinterpret_cast<const float*>(bytes_), size_};
  }

 private:
  DType dtype_ = DType::kFloat32;
  const std::byte* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GRAD_VIEW_H_
