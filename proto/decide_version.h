// The version of decide() that this build runs: coordinators write it into every plan, shards
// refuse plans of another one. Constant; any thread.
#ifndef KAON_PROTO_DECIDE_VERSION_H_
#define KAON_PROTO_DECIDE_VERSION_H_

#include <cstdint>

namespace kaon::proto {

// A change of the function is a new number; an entry planned under another one is not decided. 2:
// norm groups, clip scope and floor, the skip threshold, the loss scaler, counts carried along.
// 3: norms that were not taken are absent; an element beyond kMostGradient is an overflow. 4: the
// digest of the state that the entry found. 5: a step is skipped where a weight might not stay
// finite.
inline constexpr uint32_t kDecideVersion = 5;

}  // namespace kaon::proto

#endif  // KAON_PROTO_DECIDE_VERSION_H_
