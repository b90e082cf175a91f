// The log of a program: to stderr, each line with its time in UTC as RFC 3339 writes it.
// Thread-safe after StartLog.
#ifndef KAON_PROTO_PROGRAM_LOG_H_
#define KAON_PROTO_PROGRAM_LOG_H_

namespace kaon::proto {

// Starts the log. Call it once from main, before any thread starts. A line begins with
// "2026-11-27T03:37:13.123456Z W 4711 file.cc:12] ": time, severity, thread and place.
void StartLog(const char* program);

}  // namespace kaon::proto

#endif  // KAON_PROTO_PROGRAM_LOG_H_
