// The log of a server's process: to stderr, each line with its time in UTC as RFC 3339 writes it.
// Thread-safe after StartLog.
#ifndef KAON_SERVER_CONFIG_SERVER_LOG_H_
#define KAON_SERVER_CONFIG_SERVER_LOG_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::config {

// Starts the log. Call it once from main, before any thread starts. A line begins with
// "2026-11-27T03:37:13.123456Z W 4711 file.cc:12] ": time, severity, thread and place.
void StartLog(const char* program);

// Returns INVALID_ARGUMENT unless `level` is debug, info, warning, error or empty.
absl::Status CheckLogLevel(absl::string_view level);

// Logs messages of this severity and above from now on. Empty means info; debug is info and each
// step. Errors of CheckLogLevel.
absl::Status SetLogLevel(absl::string_view level);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_LOG_H_
