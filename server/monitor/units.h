// Words for people: bytes and times as table cells. JSON keeps raw numbers, and times of day as RFC
// 3339. Pure functions; any thread.
#ifndef KAON_SERVER_MONITOR_UNITS_H_
#define KAON_SERVER_MONITOR_UNITS_H_

#include <cstdint>
#include <string>

namespace kaon::monitor {

// Returns "512 B", "1.5 KiB", "4.0 GiB".
std::string Bytes(uint64_t bytes);

// Returns "1.5 ms", "2.5 s", "3m 20s", "2h 5m", "4d 3h"; "0 s" for 0.
std::string Seconds(double seconds);

// Returns the time of day in UTC as RFC 3339, such as 2026-11-27T03:15:00Z; "" for 0.
std::string TimeText(int64_t unix_millis);

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_UNITS_H_
