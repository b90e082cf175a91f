// The decision on one log entry as a pure, versioned function of its PREPAREs and the record before
// (protocol.md section 2; numerics.md [C1]-[C8], [T2b]-[T5], [T8]). Any thread; used by the
// coordinator, its tests and kaon-train --local.
#ifndef KAON_JOB_DECIDE_H_
#define KAON_JOB_DECIDE_H_

#include <vector>

#include "kaon/v1/agreement.pb.h"

namespace kaon::job {

// No parameter is stepped with an element of its clipped gradient beyond it ([T3]): squares of such
// elements, 2^124, and what a momentum that keeps all but 2^-24 of itself sums them up to, 2^86,
// are finite in fp32, so that no finite gradient makes a moment or a weight that is not.
inline constexpr double kMostGradient = 0x1p62;

// `job`: the registration as applied, or the plan's own body for the entry that registers it.
// `prepared`: one per shard, all of `plan`. `previous`: record of the position
// before; null at position 1. Pure: the same arguments give the same bytes, and the split over
// shards does not matter.
v1::StepDecision Decide(const v1::RegisterBody& job, const v1::StepPlan& plan,
                        const std::vector<v1::Prepared>& prepared, const v1::StepRecord* previous);

}  // namespace kaon::job

#endif  // KAON_JOB_DECIDE_H_
