// Decides one log entry from its PREPAREs and the record before. The function is pure and versioned
// (protocol.md section 2; numerics.md [C1]-[C8], [T2b]-[T5], [T8]); any thread. The coordinator,
// its tests and kaon-train --local use it.
#ifndef KAON_JOB_DECIDE_H_
#define KAON_JOB_DECIDE_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"

namespace kaon::job {

// Largest element of a clipped gradient that a step applies; larger elements skip the step ([T3]).
// A momentum that keeps all but 2^-24 of itself sums such elements up to 2^86; their squares are
// 2^124. Both are finite in fp32, so a finite gradient always gives finite moments and weights.
inline constexpr double kMostGradient = 0x1p62;

// `job` is the registration as applied, or the plan's own body for the entry that registers the
// job. `prepared` holds one vote per shard, all for `plan`. `previous` is the record of the
// position before; null at position 1. The same arguments give the same bytes. The split of the job
// over shards does not change the result.
v1::StepDecision Decide(const v1::RegisterBody& job, const v1::StepPlan& plan,
                        const std::vector<v1::Prepared>& prepared, const v1::StepRecord* previous);

}  // namespace kaon::job

#endif  // KAON_JOB_DECIDE_H_
