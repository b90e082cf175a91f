// A sum of gradients in a backend's space, for tests and the numerics table. One thread.
#ifndef KAON_TESTS_CONFORMANCE_GRADIENT_SUM_H_
#define KAON_TESTS_CONFORMANCE_GRADIENT_SUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace kaon::kernels {

class GradientSum {
 public:
  // Starts with these values.
  GradientSum(Backend& backend, absl::Span<const float> values)
      : tensor_(backend, values), accumulation_(backend.Accumulate(tensor_.region())) {
    accumulation_->Begin();
    // Begin may have destroyed them.
    tensor_.Fill(values);
  }

  // Folds one contribution as a whole.
  void Fold(DType dtype, absl::Span<const std::byte> bytes, float weight, uint32_t contribution,
            bool first) {
    accumulation_->Fold({dtype, {&bytes, 1}, 0, contribution, weight, first});
  }

  Accumulation& accumulation() { return *accumulation_; }
  // Copies the present values to the host.
  std::vector<float> Floats() const { return tensor_.Floats(); }

 private:
  Tensor tensor_;
  std::unique_ptr<Accumulation> accumulation_;
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_CONFORMANCE_GRADIENT_SUM_H_
