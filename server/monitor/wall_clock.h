// The time of day, for people and for the dates in certificates. Durations and deadlines use
// SteadyNow. Any thread.
#ifndef KAON_SERVER_MONITOR_WALL_CLOCK_H_
#define KAON_SERVER_MONITOR_WALL_CLOCK_H_

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kaon::monitor {

inline absl::Time WallNow() { return absl::Now(); }

// Returns milliseconds since 1970 UTC.
inline int64_t UnixMillisNow() { return absl::ToUnixMillis(WallNow()); }

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_WALL_CLOCK_H_
