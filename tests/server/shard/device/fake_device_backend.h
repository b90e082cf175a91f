// A backend whose memory the host cannot touch: the CPU backend behind addresses that no host
// pointer may follow. Every use of a region is checked against the allocations. A new sum is filled
// with NaNs. The creator owns it, as any Backend; thread-safe.
#ifndef KAON_TESTS_SERVER_SHARD_DEVICE_FAKE_DEVICE_BACKEND_H_
#define KAON_TESTS_SERVER_SHARD_DEVICE_FAKE_DEVICE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/mutex.h"
#include "tests/kernels/forwarding_backend.h"

namespace kaon::shard {

class FakeDeviceBackend final : public kernels::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  // CHECKs that everything is freed.
  ~FakeDeviceBackend() override;

  std::string device_class() const override { return "fake"; }
  std::vector<kernels::ProductForm> ProductForms() const override {
    return {{"bfloat16", 64, 96, 2, "dense"}};
  }
  kernels::Space space() const override { return kernels::Space::kDevice; }
  std::string memory_tier() const override { return "fake:0"; }
  uint64_t capacity_bytes() const override { return uint64_t{1} << 30; }
  absl::StatusOr<kernels::Region> Allocate(uint64_t bytes) override;
  void Free(kernels::Region region) override;
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override;
  void FreeStaging(absl::Span<std::byte> staging) override;
  void CopyIn(absl::Span<const std::byte> from, kernels::Region to) override;
  void CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) override;
  void Copy(kernels::ConstRegion from, kernels::Region to) override;
  void RoundOut(kernels::ConstRegion floats, kernels::DType dtype, std::byte* to) override;
  void Round(kernels::ConstRegion floats, kernels::DType dtype, kernels::Region to) override;
  uint64_t Digest(uint32_t parameter_id, uint32_t slot, kernels::ConstRegion bytes) override;
  uint32_t LargestMagnitude(kernels::ConstRegion floats) override;
  std::unique_ptr<kernels::Accumulation> Accumulate(kernels::Region sum) override;
  void RunUpdates(absl::Span<kernels::Update> updates) override;

  // Refuses every allocation of the device while `full`.
  void SetFull(bool full);
  // Bytes of staging that are allocated.
  uint64_t staging_bytes() const;
  // Returns the number of calls that copied out.
  uint64_t copies_out() const;

 private:
  // Returns the host memory behind a region of the device.
  template <typename Byte>
  kernels::BasicRegion<Byte> Behind(kernels::BasicRegion<Byte> region) const;

  mutable Mutex mu_;
  // Sizes of what is allocated, by address on the device.
  std::map<uintptr_t, uint64_t> allocated_ ABSL_GUARDED_BY(mu_);
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t staging_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t copies_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_DEVICE_FAKE_DEVICE_BACKEND_H_
