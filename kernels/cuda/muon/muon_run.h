// One list of Muon updates on its way through the lanes of a MuonRunner: Prepare, Queue, Finish.
// One thread. The runner's memory and lanes belong to it meanwhile.
#ifndef KAON_KERNELS_CUDA_MUON_MUON_RUN_H_
#define KAON_KERNELS_CUDA_MUON_MUON_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/elements/muon_elements.h"
#include "kernels/cuda/elements/update_facts.h"
#include "kernels/cuda/muon/muon_batches.h"
#include "kernels/cuda/muon/muon_lane.h"
#include "kernels/cuda/owned_memory.h"
#include "kernels/update.h"

namespace kaon::kernels::cuda {

// Limits of the plans' memory.
struct MuonLimits {
  // Matrices of plans of one lane. A larger one runs alone.
  uint64_t most_plan_bytes = uint64_t{1} << 30;
  // Batches of at most so many bytes run on several lanes at once; the rest on the first.
  uint64_t small_plan_bytes = uint64_t{64} << 20;
};

// Returns NumTileSquares of equal matrices.
int64_t TileSquaresOf(const MatrixCount& matrices);

// Memory that one run leaves to the next.
struct MuonMemory {
  // Arguments of kernels, and facts about results.
  OwnedMemory device;
  OwnedMemory pinned;

  // Makes both at least so large. RESOURCE_EXHAUSTED.
  absl::Status Reserve(Device& owner, uint64_t device_bytes, uint64_t pinned_bytes);
};

class MuonRun {
 public:
  // All arguments outlive it. There is at least one lane.
  MuonRun(Device& device, absl::Span<const std::unique_ptr<MuonLane>> lanes,
          const MuonLimits& limits, absl::Span<Update* const> updates)
      : device_(device), lanes_(lanes), limits_(limits), updates_(updates) {}

  // Finds plans and memory. May block on the lanes. Fails as NewtonSchulzPlan::Create does.
  absl::Status Prepare(MuonMemory& memory);
  // Queues everything up to the facts about the new weights.
  void Queue();
  // Blocks until all is done, and writes the results.
  void Finish();

 private:
  // Where arguments and facts lie in device memory, in bytes. Those up to `facts_end` have an image
  // in pinned memory.
  struct Places {
    uint64_t steps = 0;
    uint64_t matrices = 0;
    uint64_t row_elements = 0;
    uint64_t update_facts = 0;
    uint64_t matrix_facts = 0;
    uint64_t facts_end = 0;
    uint64_t end = 0;
  };
  struct UpdatePlaces {
    uint64_t norms = 0;
    // Direction and new weights of an update whose new_param is param.
    uint64_t direction = 0;
  };
  struct RunningBatch {
    MuonBatch batch;
    MuonLane* lane = nullptr;
    NewtonSchulzPlan* plan = nullptr;
    // The first of its matrices among all.
    size_t first = 0;
    // Its first matrices, whose norms are not those of their direction.
    int64_t num_described = 0;
    // Counts of the described matrices, one after the other.
    uint64_t norms = 0;
    uint64_t tile_squares = 0;
  };

  const MuonConfig& ConfigOf(size_t update) const;
  int64_t NumElements(size_t update) const;
  bool HasWeights(size_t update) const {
    return updates_[update]->buffers.part != UpdatePart::kState;
  }
  bool IsInPlace(size_t update) const;
  float* Direction(size_t update) const;
  bool SharesNorms(const BatchedMatrix& matrix) const;
  MuonMatrices Matrices(const RunningBatch& running) const;

  absl::Status PreparePlans();
  void Place();
  void FillSteps();
  void FillMatrices();
  void QueueMomentum();
  void QueueBatch(const RunningBatch& running);
  void KeepWeights(size_t update);
  void AddFacts();

  template <typename T>
  T* OnDevice(uint64_t place) const {
    return reinterpret_cast<T*>(memory_->device.data() + place);
  }
  template <typename T>
  T* OnHost(uint64_t place) const {
    return reinterpret_cast<T*>(memory_->pinned.data() + place);
  }

  Device& device_;
  const absl::Span<const std::unique_ptr<MuonLane>> lanes_;
  const MuonLimits limits_;
  const absl::Span<Update* const> updates_;
  MuonMemory* memory_ = nullptr;
  std::vector<RunningBatch> batches_;
  // Updates in the order of their steps: by the type of their state.
  std::vector<size_t> step_order_;
  Places places_;
  std::vector<UpdatePlaces> update_places_;
  size_t num_matrices_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_MUON_MUON_RUN_H_
