#include "proto/program_log.h"

// Debian's glog has the prefix callback and hides its declaration.
#define GLOG_CUSTOM_PREFIX_SUPPORT
#include <glog/logging.h>
#include <unistd.h>

#include <ostream>

#include "absl/strings/str_cat.h"

namespace kaon::proto {

namespace {

void WritePrefix(std::ostream& out, const google::LogMessageInfo& message, void*) {
  const absl::Time time =
      absl::FromTimeT(message.time.timestamp()) + absl::Microseconds(message.time.usec());
  out << LogPrefix(time, message.severity[0], message.filename, message.line_number);
}

}  // namespace

void StartLog(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program, &WritePrefix);
}

std::string LogTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::string LogPrefix(absl::Time time, char severity, absl::string_view file, int line) {
  return absl::StrCat(LogTime(time), " ", absl::string_view(&severity, 1), " ", gettid(), " ", file,
                      ":", line, "]");
}

}  // namespace kaon::proto
