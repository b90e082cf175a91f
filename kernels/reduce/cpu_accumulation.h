// The sum of the gradients of one parameter in host memory, computed by the CPU. Its creator owns
// it. Calls come one after the other, on any thread.
#ifndef KAON_KERNELS_REDUCE_CPU_ACCUMULATION_H_
#define KAON_KERNELS_REDUCE_CPU_ACCUMULATION_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/accumulation.h"
#include "kernels/cpu/thread_pool.h"

namespace kaon::kernels {

class CpuAccumulation final : public Accumulation {
 public:
  // `sum` and `pool` outlive this object. Folds run in the caller's thread, the mean on the pool.
  CpuAccumulation(absl::Span<float> sum, ThreadPool& pool) : sum_(sum), pool_(pool) {}

  void Begin() override { facts_.clear(); }
  void Fold(const GradientChunk& chunk) override;
  void SetZero() override;
  MeanFacts FinishMean(const MeanScalars& scalars) override;
  FoldFacts FactsOf(uint32_t contribution) const override;

 private:
  const absl::Span<float> sum_;
  ThreadPool& pool_;
  // Indexed by contribution; ends with the last one that has a chunk.
  std::vector<FoldFacts> facts_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REDUCE_CPU_ACCUMULATION_H_
