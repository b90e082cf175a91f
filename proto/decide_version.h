// The version of decide() that this build runs. Coordinators write it into every plan; shards
// refuse plans of another version. Constant; any thread.
#ifndef KAON_PROTO_DECIDE_VERSION_H_
#define KAON_PROTO_DECIDE_VERSION_H_

#include <cstdint>

namespace kaon::proto {

// Each change of the function gets a new number. A shard does not decide an entry of another
// version.
// 2: norm groups, clip scope and floor, the skip threshold, the loss scaler, counters in the
// record.
// 3: norms that were not computed are absent; an element beyond kMostGradient is an overflow.
// 4: the digest of the state before the entry.
// 5: a step is skipped if a weight might not stay finite.
inline constexpr uint32_t kDecideVersion = 5;

}  // namespace kaon::proto

#endif  // KAON_PROTO_DECIDE_VERSION_H_
