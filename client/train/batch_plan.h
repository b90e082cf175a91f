// Which characters each worker predicts in each step: a pure function of the seed, the step and the
// split, so that a run can be resumed, and repeated with other processes, bit for bit. Owned by one
// worker and used by one thread (it keeps the shuffled order of one epoch).
#ifndef KAON_CLIENT_TRAIN_BATCH_PLAN_H_
#define KAON_CLIENT_TRAIN_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace kaon::train {

struct BatchPlanOptions {
  uint64_t seed = 1;
  // Positions to draw from; each epoch visits every one once, in another order.
  int64_t num_positions = 0;
  int batch_size = 512;
  // Relative shares of the batch by rank.
  std::vector<uint32_t> shares = {1};
};

class BatchPlan {
 public:
  // INVALID_ARGUMENT when a rank would get no position, naming rank, share and batch size.
  static absl::StatusOr<BatchPlan> Create(const BatchPlanOptions& options);

  // Positions per step of `rank`; they add up to the batch size.
  int slice_size(int rank) const { return ends_[rank] - begin(rank); }

  // Positions of `rank` in `step` >= 1. The slices of one step are disjoint pieces of the step's
  // batch, whatever the split.
  std::vector<int64_t> Slice(uint64_t step, int rank);

 private:
  explicit BatchPlan(const BatchPlanOptions& options) : options_(options) {}

  int begin(int rank) const { return rank == 0 ? 0 : ends_[rank - 1]; }
  void Shuffle(uint64_t epoch);

  BatchPlanOptions options_;
  // End of each rank's slice within the batch.
  std::vector<int> ends_;
  std::vector<int64_t> order_;
  uint64_t epoch_ = 0;
};

// Factor on every group's learning rate in `step` of `steps`: linear warm-up over the first
// twentieth, then 1, then a linear decay to 1/50 over the second half.
double LearningRateMultiplier(uint64_t step, uint64_t steps);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_BATCH_PLAN_H_
