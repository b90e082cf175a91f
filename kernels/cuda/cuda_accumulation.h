// The sum of the gradients of one parameter in device memory. All its work runs on one stream of
// the ring, so folds and mean need no events between them. Its creator owns it. Calls come one
// after the other, on any thread.
#ifndef KAON_KERNELS_CUDA_CUDA_ACCUMULATION_H_
#define KAON_KERNELS_CUDA_CUDA_ACCUMULATION_H_

#include <cstdint>
#include <vector>

#include "kernels/accumulation.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/fold_ring.h"
#include "kernels/cuda/lane_pool.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/region.h"

namespace kaon::kernels::cuda {

class CudaAccumulation final : public Accumulation {
 public:
  // All arguments outlive this object. The memory for facts must suffice: a device without it ends
  // the process with the arithmetic.
  CudaAccumulation(Device& device, LanePool& lanes, FoldRing& ring, Region sum);
  // Blocks until the folds are done.
  ~CudaAccumulation() override;

  void Begin() override;
  void Fold(const GradientChunk& chunk) override;
  void SetZero() override;
  MeanFacts FinishMean(const MeanScalars& scalars) override;
  FoldFacts FactsOf(uint32_t contribution) const override;

 private:
  // Returns once all work on the sum is done.
  void Await() const;
  // Makes room for the facts of contribution `last`.
  void ReserveFacts(uint32_t last);
  // Queues the copy of a chunk to the device.
  void CopyChunkIn(Stream& stream, const FoldSlot& slot, uint64_t bytes) const;
  void ReadFacts() const;

  Device& device_;
  LanePool& lanes_;
  FoldRing& ring_;
  const Region sum_;
  FoldStream& stream_;
  // FoldSums by contribution.
  OwnedMemory facts_;
  uint32_t capacity_ = 0;
  // Contributions up to the last one that has a chunk.
  uint32_t num_contributions_ = 0;
  // Facts of the mean, on the device and on the host; empty before the first one.
  OwnedMemory mean_facts_;
  std::vector<std::byte> facts_of_mean_;
  // The facts on the host, read by the first FactsOf after a fold.
  mutable std::vector<FoldFacts> known_facts_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_CUDA_ACCUMULATION_H_
