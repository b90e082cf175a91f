// Updates by element-wise rules, on several streams at once: queued by the constructor, done after
// Finish. Owned by the call that runs them; one thread.
#ifndef KAON_KERNELS_CUDA_ELEMENT_WISE_UPDATES_H_
#define KAON_KERNELS_CUDA_ELEMENT_WISE_UPDATES_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/elements/update_facts.h"
#include "kernels/cuda/fold_ring.h"
#include "kernels/cuda/lane_pool.h"
#include "kernels/update.h"

namespace kaon::kernels::cuda {

class ElementWiseUpdates {
 public:
  // Most updates of one object: their facts fit the result of a lane.
  static constexpr size_t kMost = Lane::kResultBytes / sizeof(UpdateFacts);

  // Queues updates on at most `most_streams` lanes. The arguments outlive this object.
  ElementWiseUpdates(LanePool& lanes, FoldRing& folds, size_t most_streams,
                     absl::Span<Update* const> updates);

  size_t size() const { return updates_.size(); }

  // Waits once, and writes the results. Updates whose weights would not be finite keep the old
  // ones. Called once.
  void Finish();

 private:
  // One update in the lane that runs it.
  struct Queued {
    Update* update = nullptr;
    size_t lane = 0;
    // Number of its facts in the lane's result.
    size_t place = 0;
  };

  // Queues the copies of all facts, and waits for them.
  void ReadFacts();
  // Queues what undoes an update with a fault.
  void KeepWeights(const Queued& queued);

  std::vector<LanePool::Borrowed> lanes_;
  std::vector<Queued> updates_;
  // Number of updates of each lane.
  std::vector<size_t> counts_;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_ELEMENT_WISE_UPDATES_H_
