// The backend of one CUDA device, over the seam of device.h: the same code runs on a GPU and, for
// tests, on the host. Its creator owns it. Several threads may use it concurrently on disjoint
// buffers; one list of Muon updates runs at a time. Element-wise updates, facts and digests have
// the bits of the CPU backend, NaN payloads excepted; Newton-Schulz agrees within [N9].
#ifndef KAON_KERNELS_CUDA_CUDA_BACKEND_H_
#define KAON_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/fold_ring.h"
#include "kernels/cuda/lane_pool.h"
#include "kernels/cuda/muon/muon_runner.h"
#include "kernels/mutex.h"

namespace kaon::kernels::cuda {

class CudaBackend final : public Backend {
 public:
  struct Options {
    // Number of the device, as in "cuda:0".
    int ordinal = 0;
    // Threads that copy or update at once; more of them wait for each other.
    int num_lanes = 8;
    FoldRing::Options folds;
    // Streams that one call spreads updates over.
    size_t num_update_streams = 4;
  };
  // RESOURCE_EXHAUSTED with the arithmetic; otherwise the code and reason of a library.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(std::unique_ptr<Device> device,
                                                             const Options& options);
  ~CudaBackend() override;

  std::string name() const override;
  std::string device_class() const override;
  std::vector<ProductForm> ProductForms() const override { return muon_->product_choice().Forms(); }

  Space space() const override { return Space::kDevice; }
  std::string memory_tier() const override;
  uint64_t capacity_bytes() const override;
  absl::StatusOr<Region> Allocate(uint64_t bytes) override;
  void Free(Region region) override;
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override;
  void FreeStaging(absl::Span<std::byte> staging) override;

  void CopyIn(absl::Span<const std::byte> from, Region to) override;
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override;
  void Copy(ConstRegion from, Region to) override;
  void RoundOut(ConstRegion floats, DType dtype, std::byte* to) override;
  void Round(ConstRegion floats, DType dtype, Region to) override;
  uint64_t Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) override;
  uint32_t LargestMagnitude(ConstRegion floats) override;

  std::unique_ptr<Accumulation> Accumulate(Region sum) override;

  void RunUpdates(absl::Span<Update> updates) override;
  // The longest list whose workspace is at most 1 GiB.
  size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const override;
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const override;
  // Allocates the workspace as well, so that no update finds the device full.
  absl::Status Reserve(absl::Span<const SizedUpdate> updates) override;

 private:
  CudaBackend(std::unique_ptr<Device> device, const Options& options);

  // Returns a lane whose stream waits for the folds into `memory`.
  LanePool::Borrowed LaneAfter(ConstRegion memory);
  // Returns true if the bytes are staging memory of this backend.
  bool IsStaging(const std::byte* begin, uint64_t bytes) const;

  const Options options_;
  const std::unique_ptr<Device> device_;
  // Free at the start: what other processes have is not for this one.
  const uint64_t capacity_bytes_;
  std::unique_ptr<LanePool> lanes_;
  std::unique_ptr<FoldRing> folds_;
  std::unique_ptr<MuonRunner> muon_;

  mutable Mutex mutex_;
  // Sizes of staging allocations by address.
  std::map<const std::byte*, uint64_t> staging_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_CUDA_BACKEND_H_
