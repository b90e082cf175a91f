// Appends the gradient that a vote is about to the journal, before the PREPARE that holds the vote.
// Owned by ShardCore; step thread.
#ifndef KAON_SERVER_SHARD_GRADIENT_APPENDER_H_
#define KAON_SERVER_SHARD_GRADIENT_APPENDER_H_

#include <cstdint>

#include "server/journal/record.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/shard_host.h"

namespace kaon::shard {

class GradientAppender {
 public:
  // Both outlive this object.
  GradientAppender(GradientAccumulator& accumulator, ShardHost& host)
      : accumulator_(accumulator), host_(host) {}

  // Finishes the sum of one parameter and appends it, while workers still push others.
  void OnParameterFolded(uint64_t generation, uint32_t parameter_id);
  // Appends the rest of the gradient if `record` is the first PREPARE of its generation. Must be
  // called before `record` is appended.
  void BeforeAppend(const journal::Record& record);
  // Tells the host that no PREPARE follows the slices since the last one, if there are any. Must be
  // called before the memory of sums is reused.
  void Withdraw();
  // Tells, during replay, that the journal holds a PREPARE of `generation`.
  void OnReplayed(uint64_t generation) { prepared_generation_ = generation; }

 private:
  GradientAccumulator::AppendSlice AppendSlice();

  GradientAccumulator& accumulator_;
  ShardHost& host_;
  // Newest generation whose PREPARE was appended.
  uint64_t prepared_generation_ = 0;
  // Slices were appended since the last PREPARE.
  bool ahead_of_prepare_ = false;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENT_APPENDER_H_
