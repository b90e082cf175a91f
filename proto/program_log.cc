#include "proto/program_log.h"

// Debian's glog has the prefix callback and hides its declaration.
#define GLOG_CUSTOM_PREFIX_SUPPORT
#include <glog/logging.h>

#include <ostream>

#include "absl/time/time.h"

namespace kaon::proto {

namespace {

void WritePrefix(std::ostream& out, const google::LogMessageInfo& message, void*) {
  const absl::Time time =
      absl::FromTimeT(message.time.timestamp()) + absl::Microseconds(message.time.usec());
  out << absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()) << ' '
      << message.severity[0] << ' ' << message.thread_id << ' ' << message.filename << ':'
      << message.line_number << ']';
}

}  // namespace

void StartLog(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program, &WritePrefix);
}

}  // namespace kaon::proto
