// Puts the gradients that a journal holds back where the votes on them found them: takes slices in
// the order in which they were appended, and at a PREPARE makes the accumulator stand as if it had
// folded them. Slices that no PREPARE follows are forgotten. Owned by ShardCore while it replays;
// one thread.
#ifndef KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_
#define KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "kaon/v1/agreement.pb.h"
#include "server/journal/record.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

class GradientReplay {
 public:
  // `accumulator` outlives this object.
  explicit GradientReplay(GradientAccumulator& accumulator) : accumulator_(accumulator) {}

  // Forgets what no PREPARE followed.
  void Clear() { added_.clear(); }

  // With `keep_sums`, the accumulator's sums are those of a PREPARE that stands until another one
  // is read: the slice waits beside them. DATA_LOSS naming the parameter and both numbers when it
  // is not this shard's, does not follow the slice before, or ends beyond its parameter.
  absl::Status Add(const journal::GradientSlice& slice, bool keep_sums);

  // The vote on what was added of its generation. DATA_LOSS naming both values when a gradient is
  // incomplete or too many, or when its digest is not that of the vote.
  absl::Status Complete(const v1::StepPlan& plan, uint64_t generation, const v1::Prepared& facts);

 private:
  // Elements of one parameter.
  struct Added {
    uint64_t num_elements = 0;
    // What waits, if it must.
    std::vector<float> waiting;
  };

  absl::Status CheckAdded(const v1::Prepared& facts) const;

  GradientAccumulator& accumulator_;
  uint64_t generation_ = 0;
  std::map<uint32_t, Added> added_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_GRADIENT_REPLAY_H_
