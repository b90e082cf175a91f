// The time of day, for people. It decides nothing: durations and deadlines use SteadyNow. Any
// thread.
#ifndef KAON_SERVER_MONITOR_WALL_CLOCK_H_
#define KAON_SERVER_MONITOR_WALL_CLOCK_H_

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kaon::monitor {

// Returns milliseconds since 1970 UTC.
inline int64_t UnixMillisNow() { return absl::ToUnixMillis(absl::Now()); }

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_WALL_CLOCK_H_
