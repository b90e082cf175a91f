// When a shard in durability mode interval(K) has to have which snapshot, so that all shards can go
// back to a common step, K back at most (protocol.md section 3). A plain value; any thread.
#ifndef KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_
#define KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_

#include <cstdint>

#include "kaon/v1/agreement.pb.h"

namespace kaon::journal {

// Snapshots are taken at the same steps by every shard: at the first of a timeline (initial
// weights, restore, rollback), and after every train step whose number is a multiple of
// h = ceil(K / 2); the two newest are kept.
//
// A shard votes for step s once a snapshot of the timeline is durable whose step d is at least the
// one before the newest point up to s: d >= s - s % h - h. As s is committed by all votes,
// (a) what is lost is less than h + s % h < 2 h <= K + 1 steps, and
// (b) no shard has a snapshot that is two points newer than another shard's newest: the point at s
//     itself needs the one before it of everybody. So the two that each keeps have one in common.
class IntervalSchedule {
 public:
  // K; at least 1.
  explicit IntervalSchedule(uint32_t steps) : spacing_((steps + uint64_t{1}) / 2) {}

  // Every shard takes a snapshot of the state that the entry leaves.
  bool IsPoint(const v1::StepRecord& record) const;
  // A shard whose newest durable snapshot of the timeline is of step `durable` may vote for `step`.
  bool MayVote(uint64_t step, uint64_t durable) const;

 private:
  uint64_t spacing_;
};

}  // namespace kaon::journal

#endif  // KAON_SERVER_JOURNAL_INTERVAL_SCHEDULE_H_
