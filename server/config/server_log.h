// The level of a server's log (proto/program_log.h). Thread-safe after proto::StartLog.
#ifndef KAON_SERVER_CONFIG_SERVER_LOG_H_
#define KAON_SERVER_CONFIG_SERVER_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::config {

// Returns INVALID_ARGUMENT unless `level` is debug, info, warning, error or empty.
absl::Status CheckLogLevel(absl::string_view level);

// Logs messages of this severity and above from now on. Empty means info; debug is info and each
// step. Errors of CheckLogLevel.
absl::Status SetLogLevel(absl::string_view level);

// Returns the level that is set: debug, info, warning or error.
std::string LogLevel();

// Rejects a form that is not text, json or empty, which means text.
absl::Status CheckLogFormat(absl::string_view format);

// Sets the form of the lines on stderr. Text is that of StartLog. JSON is one object a line, with
// the keys ts, level, program, thread, source and msg. It also has job, step, shard, peer and
// trace_id where they are known (server/config/log_facts.h). Either form limits the lines of each
// place in the code (server/config/log_lines.h). `program` is the program's name. Call it from main
// before other threads start.
absl::Status SetLogFormat(absl::string_view format, const std::string& program);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_LOG_H_
