// A backend that passes every call on to another one. Tests override what they need to differ.
#ifndef KAON_TESTS_KERNELS_FORWARDING_BACKEND_H_
#define KAON_TESTS_KERNELS_FORWARDING_BACKEND_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace kaon::kernels {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> to) : to_(std::move(to)) {}

  std::string name() const override { return to_->name(); }
  std::string device_class() const override { return to_->device_class(); }
  std::vector<ProductForm> ProductForms() const override { return to_->ProductForms(); }
  Space space() const override { return to_->space(); }
  std::string memory_tier() const override { return to_->memory_tier(); }
  uint64_t capacity_bytes() const override { return to_->capacity_bytes(); }
  absl::StatusOr<Region> Allocate(uint64_t bytes) override { return to_->Allocate(bytes); }
  void Free(Region region) override { to_->Free(region); }
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override {
    return to_->AllocateStaging(bytes);
  }
  void FreeStaging(absl::Span<std::byte> staging) override { to_->FreeStaging(staging); }
  void CopyIn(absl::Span<const std::byte> from, Region to) override { to_->CopyIn(from, to); }
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override { to_->CopyOut(from, to); }
  void Copy(ConstRegion from, Region to) override { to_->Copy(from, to); }
  void RoundOut(ConstRegion floats, DType dtype, std::byte* to) override {
    to_->RoundOut(floats, dtype, to);
  }
  void Round(ConstRegion floats, DType dtype, Region to) override { to_->Round(floats, dtype, to); }
  uint64_t Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) override {
    return to_->Digest(parameter_id, slot, bytes);
  }
  uint32_t LargestMagnitude(ConstRegion floats) override { return to_->LargestMagnitude(floats); }
  std::unique_ptr<Accumulation> Accumulate(Region sum) override { return to_->Accumulate(sum); }
  void RunUpdates(absl::Span<Update> updates) override { to_->RunUpdates(updates); }
  size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const override {
    return to_->NumConcurrentUpdates(updates);
  }
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const override {
    return to_->WorkspaceBytes(updates);
  }
  absl::Status Reserve(absl::Span<const SizedUpdate> updates) override {
    return to_->Reserve(updates);
  }

 private:
  const std::unique_ptr<Backend> to_;
};

}  // namespace kaon::kernels

#endif  // KAON_TESTS_KERNELS_FORWARDING_BACKEND_H_
