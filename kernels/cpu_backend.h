// The `cpu` backend, the reference for all others. It has plain loops, vectorized for the machine's
// instruction set with the same bits on each, and a Gemm for matrix products. The creator owns it.
// Several threads may use it concurrently on disjoint buffers. Every call runs in its caller's
// thread.
#ifndef KAON_KERNELS_CPU_BACKEND_H_
#define KAON_KERNELS_CPU_BACKEND_H_

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/gemm/gemm.h"
#include "kernels/thread_pool.h"

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
  int64_t Fold(DType dtype, const std::byte* src, float weight, bool first, absl::Span<float> acc,
               double* sum_squares) override;
  MeanFacts FinishMean(const MeanScalars& scalars, absl::Span<float> acc) override;
  UpdateResult ApplyUpdate(const RuleConfig& rule, const UpdateScalars& scalars,
                           absl::Span<const uint64_t> shape, const UpdateBuffers& buffers) override;
  void RunUpdates(int64_t n, absl::FunctionRef<void(int64_t)> update) override;
  // Runs consecutive small updates concurrently if none takes more than one thread's share of their
  // work. Readers wait for the first of them, so all take at most some tens of milliseconds.
  size_t NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const override;
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate> updates) const override;

 private:
  ThreadPool pool_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_CPU_BACKEND_H_
