// The version of decide() that this build runs: coordinators write it into every plan, shards
// refuse plans of another one. Constant; any thread.
#ifndef KAON_PROTO_DECIDE_VERSION_H_
#define KAON_PROTO_DECIDE_VERSION_H_

#include <cstdint>

namespace kaon::proto {

// A change of the function is a new number, and old ones stay callable.
inline constexpr uint32_t kDecideVersion = 1;

}  // namespace kaon::proto

#endif  // KAON_PROTO_DECIDE_VERSION_H_
