#include "kernels/tensor.h"

#include <glog/logging.h>

#include <utility>

namespace kaon::kernels {
namespace {

absl::Span<const std::byte> BytesOf(absl::Span<const float> floats) {
  return {reinterpret_cast<const std::byte*>(floats.data()), floats.size() * sizeof(float)};
}

}  // namespace

absl::StatusOr<Tensor> Tensor::Create(Backend& backend, uint64_t bytes) {
  if (bytes == 0) return Tensor(&backend, Region(backend.space(), nullptr, 0));
  const absl::StatusOr<Region> region = backend.Allocate(bytes);
  if (!region.ok()) return region.status();
  return Tensor(&backend, *region);
}

Tensor::Tensor(Backend& backend, absl::Span<const std::byte> bytes) {
  absl::StatusOr<Tensor> tensor = Create(backend, bytes.size());
  CHECK(tensor.ok()) << tensor.status();
  *this = *std::move(tensor);
  backend.CopyIn(bytes, region_);
}

Tensor::Tensor(Backend& backend, absl::Span<const float> floats)
    : Tensor(backend, BytesOf(floats)) {}

Tensor::Tensor(Tensor&& other) noexcept
    : backend_(other.backend_), region_(std::exchange(other.region_, Region())) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(region_, other.region_);
  return *this;
}

Tensor::~Tensor() {
  if (!region_.empty()) backend_->Free(region_);
}

void Tensor::Fill(absl::Span<const float> floats) { backend_->CopyIn(BytesOf(floats), region_); }

void Tensor::Read(absl::Span<float> floats) const {
  Read(absl::MakeSpan(reinterpret_cast<std::byte*>(floats.data()), floats.size() * sizeof(float)));
}

void Tensor::Read(absl::Span<std::byte> bytes) const {
  if (backend_ != nullptr) backend_->CopyOut(region_, bytes);
}

std::vector<float> Tensor::Floats() const {
  std::vector<float> floats(region_.num_floats());
  Read(absl::MakeSpan(floats));
  return floats;
}

}  // namespace kaon::kernels
