// Updates of Muon on a device: momentum, Newton-Schulz, weights. Equal matrices of several
// parameters run as one batch. The backend owns it, and the device outlives it. Several threads may
// use it concurrently on disjoint buffers.
#ifndef KAON_KERNELS_CUDA_MUON_RUNNER_H_
#define KAON_KERNELS_CUDA_MUON_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/device.h"
#include "kernels/update.h"

namespace kaon::kernels::cuda {

class MuonRunner {
 public:
  // FAILED_PRECONDITION if a library refuses the device; RESOURCE_EXHAUSTED with the arithmetic.
  static absl::StatusOr<std::unique_ptr<MuonRunner>> Create(Device& device);
  virtual ~MuonRunner() = default;

  // Runs updates whose rule is Muon, with buffers in device memory, and writes their results.
  // Returns when all are done. Sizes are checked by the caller. The bits are those of each update
  // alone.
  virtual void RunUpdates(absl::Span<Update* const> updates) = 0;
  // Returns an upper bound on the device memory that RunUpdates allocates for these updates, all of
  // Muon, apart from what is allocated already.
  virtual uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const = 0;
  // Returns what the bits of products depend on, as part of Backend::device_class:
  // "cublasLt 13.1.0".
  virtual std::string Library() const = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_RUNNER_H_
