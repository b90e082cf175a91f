// The log of a program: to stderr, each line with its time in UTC as RFC 3339 writes it.
// Thread-safe after StartLog.
#ifndef KAON_PROTO_PROGRAM_LOG_H_
#define KAON_PROTO_PROGRAM_LOG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kaon::proto {

// Starts the log. Call it once from main, before any thread starts. A line begins with LogPrefix.
void StartLog(const char* program);

// Returns the time as a line of the log has it, such as "2026-11-27T03:37:13.123456Z".
std::string LogTime(absl::Time time);

// Returns the beginning of a line of this thread: time, severity, thread and place, such as
// "2026-11-27T03:37:13.123456Z W 4711 file.cc:12]".
std::string LogPrefix(absl::Time time, char severity, absl::string_view file, int line);

}  // namespace kaon::proto

#endif  // KAON_PROTO_PROGRAM_LOG_H_
