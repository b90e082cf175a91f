// Says which snapshots a shard in durability mode interval(K) needs before it votes. With them all
// shards can return to a common step, at most K back (protocol.md section 3). A plain value;
// thread-safe.
#ifndef KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_
#define KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"

namespace kaon::journal {

// All shards take snapshots at the same points. The first step of a timeline (initial weights,
// restore, rollback) is a point. So is every train step whose number is a multiple of h = ceil(K /
// 2). A shard keeps the two newest snapshots.
//
// A shard may vote for step s once it has a durable snapshot, in this timeline, of a step d >= s -
// s % h - h. The bound is the point before the newest point up to s. A commit of s needs all
// votes, therefore:
// (a) A loss is less than h + s % h < 2 h <= K + 1 steps.
// (b) The point at s needs every shard's snapshot of the point before. So no shard has a snapshot
// two points newer than another shard's newest, and the two snapshots of each shard have one step
// in common.
class IntervalSchedule {
 public:
  // `steps` is K, at least 1.
  explicit IntervalSchedule(uint32_t steps) : spacing_((steps + uint64_t{1}) / 2) {}

  // Returns whether every shard takes a snapshot of the state after this entry.
  bool IsPoint(const v1::StepRecord& record) const;
  // Returns whether a shard may vote for `step` if its newest durable snapshot of the timeline is
  // of step `durable`.
  bool MayVote(uint64_t step, uint64_t durable) const;

 private:
  uint64_t spacing_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_
