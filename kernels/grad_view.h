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
#include "kernels/region.h"

namespace kaon::kernels {

class GradView {
 public:
  GradView() = default;
  // Implicit: a gradient is fp32 by default.
  GradView(ConstRegion floats) : region_(floats), size_(floats.num_floats()) {}
  GradView(Region floats) : GradView(ConstRegion(floats)) {}
  GradView(absl::Span<const float> floats) : GradView(ConstRegion(floats)) {}
  GradView(const std::vector<float>& floats) : GradView(ConstRegion(floats)) {}
  // `bytes` has whole elements of `dtype`; fp32 must be aligned for float.
  GradView(DType dtype, ConstRegion bytes)
      : dtype_(dtype), region_(bytes), size_(bytes.size() / SizeOf(dtype)) {}

  DType dtype() const { return dtype_; }
  ConstRegion region() const { return region_; }
  // Returns the number of elements.
  size_t size() const { return size_; }
  // Returns the place of an element in host memory.
  const std::byte* at(int64_t element) const {
    DCHECK(region_.space() == Space::kHost);
    return region_.data() + element * static_cast<int64_t>(SizeOf(dtype_));
  }
  // Returns the fp32 elements in host memory (CHECK).
  absl::Span<const float> floats() const {
    CHECK(dtype_ == DType::kFloat32) << "gradient is " << NameOf(dtype_) << ", not float32";
    return region_.host_floats();
  }

 private:
  DType dtype_ = DType::kFloat32;
  ConstRegion region_;
  size_t size_ = 0;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_GRAD_VIEW_H_
