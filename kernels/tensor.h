// Tensor: memory of one tensor in a backend's space, freed at its end. The host fills it and reads
// it by copies. The creator owns it, and its backend outlives it. Any thread, one call at a time.
#ifndef KAON_KERNELS_TENSOR_H_
#define KAON_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/region.h"

namespace kaon::kernels {

class Tensor {
 public:
  // Holds no memory.
  Tensor() = default;
  // Allocates zeroed bytes. RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<Tensor> Create(Backend& backend, uint64_t bytes);
  // Allocates a copy of host memory. The memory must suffice (CHECK).
  Tensor(Backend& backend, absl::Span<const std::byte> bytes);
  Tensor(Backend& backend, absl::Span<const float> floats);

  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor();

  Region region() const { return region_; }

  // Copies in or out. Sizes must agree (CHECK).
  void Fill(absl::Span<const float> floats);
  void Read(absl::Span<float> floats) const;
  void Read(absl::Span<std::byte> bytes) const;
  std::vector<float> Floats() const;

 private:
  Tensor(Backend* backend, Region region) : backend_(backend), region_(region) {}

  Backend* backend_ = nullptr;
  Region region_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_TENSOR_H_
