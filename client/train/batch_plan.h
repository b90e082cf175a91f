// Assigns to each worker the characters that it predicts in each step. The plan is a pure function
// of the seed, the step and the split. So a run can be resumed, or repeated with other processes,
// bit for bit. Owned by one worker and used by one thread; it keeps the shuffled order of one
// epoch.
#ifndef KAON_CLIENT_TRAIN_BATCH_PLAN_H_
#define KAON_CLIENT_TRAIN_BATCH_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace kaon::train {

struct BatchPlanOptions {
  uint64_t seed = 1;
  // Positions to draw from. Each epoch visits every position once, in another order.
  int64_t num_positions = 0;
  int batch_size = 512;
  // Relative shares of the batch by rank.
  std::vector<uint32_t> shares = {1};
};

class BatchPlan {
 public:
  // INVALID_ARGUMENT names rank, share and batch size if a rank would get no position.
  static absl::StatusOr<BatchPlan> Create(const BatchPlanOptions& options);

  // Returns the positions per step of `rank`. They add up to the batch size.
  int slice_size(int rank) const { return ends_[rank] - begin(rank); }

  // Returns the positions of `rank` in `step` >= 1. The slices of one step are disjoint pieces of
  // the step's batch. The batch is the same for every split.
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

// Returns the factor on every group's learning rate in `step` of `steps`. It rises linearly over
// the first twentieth and is then 1. It decays linearly to 1/50 over the second half.
double LearningRateMultiplier(uint64_t step, uint64_t steps);

}  // namespace kaon::train

#endif  // KAON_CLIENT_TRAIN_BATCH_PLAN_H_
