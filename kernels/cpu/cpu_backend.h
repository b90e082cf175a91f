// The `cpu` backend, the reference for all others. It has plain loops, vectorized for the machine's
// instruction set with the same bits on each, and a Gemm for matrix products. The creator owns it.
// Several threads may use it concurrently on disjoint buffers. Every call runs in its caller's
// thread, and some on the backend's threads as well.
#ifndef KAON_KERNELS_CPU_CPU_BACKEND_H_
#define KAON_KERNELS_CPU_CPU_BACKEND_H_

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace kaon::kernels {

class CpuBackend final : public Backend {
 public:
  // `gemm` computes in the calling thread; the backend spreads large products over its own threads.
  // No result depends on the number of threads.
  explicit CpuBackend(std::unique_ptr<Gemm> gemm, int threads = 1);

  // Creates a Gemm that spreads its products over the backend's threads itself.
  using MakeGemm = std::function<std::unique_ptr<Gemm>(ThreadPool& pool)>;
  explicit CpuBackend(const MakeGemm& make_gemm, int threads = 1);

  std::string name() const override;
  std::string device_class() const override;

  Space space() const override { return Space::kHost; }
  std::string memory_tier() const override { return "cpu"; }
  uint64_t capacity_bytes() const override { return 0; }
  absl::StatusOr<Region> Allocate(uint64_t bytes) override;
  void Free(Region region) override;
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override;
  void FreeStaging(absl::Span<std::byte> staging) override;

  void CopyIn(absl::Span<const std::byte> from, Region to) override;
  void CopyOut(ConstRegion from, absl::Span<std::byte> to) override;
  void Copy(ConstRegion from, Region to) override;
  void RoundOut(ConstRegion floats, DType dtype, std::byte* to) override;
  uint64_t Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) override;
  uint32_t LargestMagnitude(ConstRegion floats) override;

  std::unique_ptr<Accumulation> Accumulate(Region sum) override;

  // Several updates run in one thread each.
  void RunUpdates(absl::Span<Update> updates) override;
  // Runs consecutive small updates concurrently if none takes more than one thread's share of their
  // work. Readers wait for the first of them, so all take at most some tens of milliseconds.
  size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const override;
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const override;

 private:
  UpdateResult Run(const Update& update);

  ThreadPool pool_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_CPU_BACKEND_H_
