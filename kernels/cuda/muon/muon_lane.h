// One stream of Muon's updates: the scratch of its products, and the plans of its batches, which
// share their memory. One thread at a time.
#ifndef KAON_KERNELS_CUDA_MUON_MUON_LANE_H_
#define KAON_KERNELS_CUDA_MUON_MUON_LANE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/muon/muon_batches.h"
#include "kernels/cuda/muon/newton_schulz.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/cuda/products/product_choice.h"
#include "kernels/cuda/products/products.h"
#include "kernels/cuda/products/symmetric_forms.h"

namespace kaon::kernels::cuda {

class MuonLane {
 public:
  // The lanes of a device share these; they outlive the lanes.
  struct Shared {
    Device& device;
    Products& products;
    SymmetricProducts& symmetric;
    ProductChoice& choice;
  };

  explicit MuonLane(const Shared& shared)
      : shared_(shared), stream_(shared.device.NewStream()), done_(shared.device.NewEvent()) {}

  Stream& stream() { return *stream_; }
  // Call it after Reserve.
  ProductStream on() { return {*stream_, scratch_.data()}; }
  // Recorded by the lane's user.
  Event& done() { return *done_; }

  // Makes room for plans of so many bytes. May block on the stream. RESOURCE_EXHAUSTED.
  absl::Status Reserve(uint64_t plan_bytes);
  // Returns the plan of a batch that Reserve had room for; it stays valid until the next Reserve.
  // Fails as NewtonSchulzPlan::Create does.
  absl::StatusOr<NewtonSchulzPlan*> PlanOf(const MuonBatch& batch);
  // Blocks on the stream.
  void ForgetPlans();
  // Forgets plans, and frees all memory. Blocks on the stream.
  void Release();

 private:
  // With more, all are forgotten: a job with as many shapes has no steps to save for.
  static constexpr size_t kMostPlans = 1024;

  const Shared shared_;
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> done_;
  OwnedMemory scratch_;
  OwnedMemory plan_memory_;
  std::map<std::string, std::unique_ptr<NewtonSchulzPlan>> plans_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_MUON_LANE_H_
