// Restores the gradients that a journal holds to their state at each vote. Reads slices in append
// order. At a PREPARE, sets the accumulator as if it had folded them. Discards slices that no
// PREPARE follows. Owned by JournalReplay; one thread.
#ifndef KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_
#define KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "server/journal/record.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

class GradientReplay {
 public:
  // `accumulator` outlives this object.
  explicit GradientReplay(GradientAccumulator& accumulator) : accumulator_(accumulator) {}

  // Discards slices that no PREPARE followed.
  void Clear() { added_.clear(); }

  // Adds a slice. `keep_sums`: the accumulator's sums belong to a PREPARE that is valid until
  // another one is read, so the slice waits in separate memory. Returns DATA_LOSS naming the
  // parameter and both numbers if the parameter is not this shard's, or the slice leaves a gap or
  // exceeds the parameter.
  absl::Status Add(const journal::GradientSlice& slice, bool keep_sums);

  // Completes a vote on the slices of `generation`. Returns DATA_LOSS naming both values if a
  // gradient is incomplete or unexpected, or its digest is not the vote's.
  absl::Status Complete(const v1::StepPlan& plan, uint64_t generation, const v1::Prepared& facts);

 private:
  // Elements read so far of one parameter.
  struct Added {
    uint64_t num_elements = 0;
    // Values that wait if the accumulator's sums are kept, in another sum or in the vector.
    std::unique_ptr<SumMemory> waiting_sum;
    std::vector<float> waiting;
  };

  // Keeps values until the vote on them is read.
  void Keep(const journal::GradientSlice& slice, Added& added);
  absl::Status CheckAdded(const v1::Prepared& facts) const;

  GradientAccumulator& accumulator_;
  uint64_t generation_ = 0;
  std::map<uint32_t, Added> added_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_
