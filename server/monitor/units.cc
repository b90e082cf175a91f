#include "server/monitor/units.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace kaon::monitor {

std::string Bytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "";
  // A value that would print as 1024.0 belongs to the next unit.
  for (const char* next : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    value /= 1024;
    unit = next;
    if (value < 1023.95) break;
  }
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string Seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const uint64_t whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrCat(whole / 60, "m ", whole % 60, "s");
  if (whole < 86400) return absl::StrCat(whole / 3600, "h ", whole % 3600 / 60, "m");
  return absl::StrCat(whole / 86400, "d ", whole % 86400 / 3600, "h");
}

std::string TimeText(int64_t unix_millis) {
  if (unix_millis == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(unix_millis),
                          absl::UTCTimeZone());
}

}  // namespace kaon::monitor
