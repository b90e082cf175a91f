// A backend whose tensors stay in host memory while a device computes Newton-Schulz: two backends
// as one. Updates that orthogonalize are copied to the device, a bounded number at a time, and
// their results back. The CPU backend does everything else: PCIe is slower than the host's memory.
// So weights of Muon have the bits of the device backend, and all other results those of the CPU
// backend. The creator owns it. Several threads may use it concurrently on disjoint buffers; those
// with work for the device take turns.
#ifndef KAON_KERNELS_OFFLOAD_OFFLOAD_BACKEND_H_
#define KAON_KERNELS_OFFLOAD_OFFLOAD_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/backend.h"
#include "kernels/mutex.h"

namespace kaon::kernels {

class OffloadBackend final : public Backend {
 public:
  struct Options {
    // Upper bound on the memory of the device in bytes: copies of updates and their workspace. 0:
    // 90 % of what the device has.
    uint64_t device_memory_bytes = 0;
    // Upper bound on the copies in bytes. An update that needs more is alone on the device.
    uint64_t most_staged_bytes = uint64_t{1} << 30;
  };
  // `cpu` computes on host memory, and `device` does not (CHECK). RESOURCE_EXHAUSTED if the device
  // has less than device_memory_bytes.
  static absl::StatusOr<std::unique_ptr<OffloadBackend>> Create(std::unique_ptr<Backend> cpu,
                                                                std::unique_ptr<Backend> device,
                                                                const Options& options);
  ~OffloadBackend() override;

  std::string name() const override;
  std::string device_class() const override;
  std::vector<ProductForm> ProductForms() const override { return device_->ProductForms(); }

  Space space() const override { return Space::kHost; }
  std::string memory_tier() const override { return cpu_->memory_tier(); }
  uint64_t capacity_bytes() const override { return cpu_->capacity_bytes(); }
  // Page-locked, so that the device copies it without a detour.
  absl::StatusOr<Region> Allocate(uint64_t bytes) override;
  void Free(Region region) override;
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override {
    return cpu_->AllocateStaging(bytes);
  }
  void FreeStaging(absl::Span<std::byte> staging) override { cpu_->FreeStaging(staging); }

  void CopyIn(absl::Span<const std::byte> from, Region to) override { cpu_->CopyIn(from, to); }
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override { cpu_->CopyOut(from, to); }
  void Copy(ConstRegion from, Region to) override { cpu_->Copy(from, to); }
  void RoundOut(ConstRegion floats, DType dtype, std::byte* to) override {
    cpu_->RoundOut(floats, dtype, to);
  }
  uint64_t Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) override {
    return cpu_->Digest(parameter_id, slot, bytes);
  }
  uint32_t LargestMagnitude(ConstRegion floats) override { return cpu_->LargestMagnitude(floats); }

  std::unique_ptr<Accumulation> Accumulate(Region sum) override { return cpu_->Accumulate(sum); }

  // CPU and device work at the same time. An update that is larger than any before grows the
  // reservation. The process ends with the arithmetic if the device has no memory for it.
  void RunUpdates(absl::Span<Update> updates) override;
  // The longest list whose buffers are at most most_staged_bytes.
  size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const override;
  // Host memory: only OrthogonalityError needs any.
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const override;
  // Allocates device memory for the copies. Refuses an update that does not fit together with its
  // workspace.
  absl::Status Reserve(absl::Span<const SizedUpdate> updates) override;

 private:
  OffloadBackend(std::unique_ptr<Backend> cpu, std::unique_ptr<Backend> device,
                 const Options& options);

  void RunOnCpu(absl::Span<Update* const> updates);
  void RunOnDevice(absl::Span<Update* const> updates);
  absl::Status ReserveLocked(absl::Span<const SizedUpdate> updates)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns how many updates, the first ones, fit the device at once; at least 1.
  size_t NumThatFitLocked(absl::Span<const SizedUpdate> updates) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies updates to the device, runs them, and copies the results back.
  void RunStagedLocked(absl::Span<Update* const> updates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<Backend> cpu_;
  const std::unique_ptr<Backend> device_;
  const Options options_;

  mutable Mutex mutex_;
  // Device memory of the copies; empty before it is reserved.
  Region staging_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_OFFLOAD_OFFLOAD_BACKEND_H_
