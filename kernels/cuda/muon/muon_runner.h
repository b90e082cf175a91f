// Updates of Muon on a device: momentum, Newton-Schulz, weights. Equal matrices of several
// parameters run as one batch. The backend owns it, and the device outlives it. Several threads may
// use it concurrently on disjoint buffers.
#ifndef KAON_KERNELS_CUDA_MUON_MUON_RUNNER_H_
#define KAON_KERNELS_CUDA_MUON_MUON_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/muon/muon_lane.h"
#include "kernels/cuda/muon/muon_run.h"
#include "kernels/cuda/products/product_choice.h"
#include "kernels/cuda/products/product_tuning.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/products/symmetric_forms.h"
#include "kernels/mutex.h"
#include "kernels/update.h"

namespace kaon::kernels::cuda {

class MuonRunner {
 public:
  // FAILED_PRECONDITION if a library refuses the device; RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<std::unique_ptr<MuonRunner>> Create(Device& device);

  // Runs updates whose rule is Muon, with buffers in device memory, and writes their results.
  // Returns when all are done. Sizes are checked by the caller. The bits are those of each update
  // alone.
  void RunUpdates(absl::Span<Update* const> updates);
  // Returns an upper bound on the device memory that RunUpdates allocates for these updates, all of
  // Muon, apart from what is allocated already. It holds while new_param is not param.
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const;
  // Allocates that much, so that RunUpdates of these updates needs no more memory.
  // RESOURCE_EXHAUSTED with the arithmetic.
  absl::Status Reserve(absl::Span<const SizedUpdate> updates);
  // Frees all that was allocated for updates. The next ones allocate it anew.
  void Release();
  // Returns the part of Backend::device_class that the bits of products depend on. It names the
  // library, and a digest of the algorithms that it chooses for some products.
  std::string Library() const { return library_; }

  // Times the forms of symmetric products for these updates, and uses the fastest from now on. So
  // bits may change. RESOURCE_EXHAUSTED.
  absl::Status TuneProducts(absl::Span<const SizedUpdate> updates, const Stopwatch& watch);
  // The forms in use (product_choice.h) and the library's algorithms.
  ProductChoice& product_choice() { return choice_; }
  std::string Algorithms() const { return products_->Algorithms(); }

 private:
  // Small batches run on several lanes at once.
  static constexpr int kNumLanes = 4;

  // Upper bounds of what a list of updates takes.
  struct Workspace {
    uint64_t places = 0;
    uint64_t first_lane = 0;
    uint64_t other_lane = 0;
  };

  MuonRunner(Device& device, std::unique_ptr<Products> products, std::string library);

  Workspace WorkspaceOf(absl::Span<const SizedUpdate> updates) const;

  Device& device_;
  const std::unique_ptr<Products> products_;
  const std::string library_;
  SymmetricProducts symmetric_;
  ProductChoice choice_;
  const MuonLimits limits_;

  Mutex mutex_;
  std::vector<std::unique_ptr<MuonLane>> lanes_ ABSL_GUARDED_BY(mutex_);
  MuonMemory memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_MUON_RUNNER_H_
