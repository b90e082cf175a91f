// Cross-checks and times the forms of symmetric products on the device at hand. Blocks on the
// stream. One thread at a time per stream.
#ifndef KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_TUNING_H_
#define KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_TUNING_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/cuda/products/product_choice.h"
#include "kernels/cuda/products/symmetric_forms.h"

namespace kaon::kernels::cuda {

// Forms under test, where they run, and the device of the stream.
struct FormsUnderTest {
  Device& device;
  SymmetricProducts& symmetric;
  ProductStream on;
};

// Times a form as the shortest of some rounds, each of enough products to hide its wait.
struct Stopwatch {
  // Reads a monotonic clock.
  absl::FunctionRef<absl::Time()> now;
  int rounds = 5;
  double operations_per_round = 2e12;
};

// Returns the bytes of device memory that a cross-check needs.
uint64_t CrossCheckBytes(const SymmetricBatch& shape);

// Returns true if `form` computes alpha A A^T + beta C as the dense form does, up to one rounding
// of each element. `memory` has CrossCheckBytes on the device, 256-byte
// aligned. Fails as SymmetricProducts::Find does.
absl::StatusOr<bool> PassesCrossCheck(const FormsUnderTest& forms, SymmetricForm form,
                                      const SymmetricBatch& shape, std::byte* memory);

// Sets the fastest form of each shape, among those that pass their cross-check. A form that is not
// at least 2 % faster than the dense one is not chosen. RESOURCE_EXHAUSTED if the device has no
// room for the matrices.
absl::Status Tune(const FormsUnderTest& forms, const Stopwatch& watch,
                  absl::Span<const SymmetricBatch> shapes, ProductChoice& choice);

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_PRODUCTS_PRODUCT_TUNING_H_
