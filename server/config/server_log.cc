#include "server/config/server_log.h"

// Debian's glog has the prefix callback and hides its declaration.
#define GLOG_CUSTOM_PREFIX_SUPPORT
#include <glog/logging.h>

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/text.h"

namespace kaon::config {

namespace {

struct Level {
  absl::string_view name;
  int least_severity;
  int verbosity;
};

constexpr Level kLevels[] = {{"", google::GLOG_INFO, 0},
                             {"debug", google::GLOG_INFO, 1},
                             {"info", google::GLOG_INFO, 0},
                             {"warning", google::GLOG_WARNING, 0},
                             {"error", google::GLOG_ERROR, 0}};

const Level* Find(absl::string_view name) {
  for (const Level& level : kLevels) {
    if (level.name == name) return &level;
  }
  return nullptr;
}

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

absl::Status CheckLogLevel(absl::string_view level) {
  if (Find(level) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("log_level is \"", proto::Excerpt(level),
                                                 "\", must be debug, info, warning or error"));
}

absl::Status SetLogLevel(absl::string_view level) {
  const Level* const found = Find(level);
  if (found == nullptr) return CheckLogLevel(level);
  FLAGS_minloglevel = found->least_severity;
  FLAGS_v = found->verbosity;
  return absl::OkStatus();
}

}  // namespace kaon::config
