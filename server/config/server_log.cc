#include "server/config/server_log.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/text.h"
#include "server/config/log_lines.h"

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

// Writes each message to stderr. glog calls it under a lock of its own.
class StderrSink final : public google::LogSink {
 public:
  explicit StderrSink(LogLines lines) : lines_(std::move(lines)) {
    FLAGS_logtostderr = false;
    google::AddLogSink(this);
  }
  // Messages of threads that outlive it go to stderr as glog writes them.
  ~StderrSink() override {
    FLAGS_logtostderr = true;
    google::RemoveLogSink(this);
  }

  void send(google::LogSeverity severity, const char*, const char* file, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    const absl::Time at = absl::FromTimeT(time.timestamp()) + absl::Microseconds(time.usec());
    const std::string text = lines_.LinesOf({severity, file, line, at, {message, size}});
    // One call, so that lines of other programs do not come between.
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
  }

 private:
  LogLines lines_;
};

const Level* Find(absl::string_view name) {
  for (const Level& level : kLevels) {
    if (level.name == name) return &level;
  }
  return nullptr;
}

}  // namespace

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

std::string LogLevel() {
  for (const Level& level : kLevels) {
    const bool matches =
        level.least_severity == FLAGS_minloglevel && (level.verbosity > 0) == (FLAGS_v > 0);
    if (!level.name.empty() && matches) return std::string(level.name);
  }
  return "error";
}

absl::Status CheckLogFormat(absl::string_view format) {
  if (format.empty() || format == "text" || format == "json") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("log_format is \"", proto::Excerpt(format), "\", must be text or json"));
}

absl::Status SetLogFormat(absl::string_view format, const std::string& program) {
  if (const absl::Status status = CheckLogFormat(format); !status.ok()) return status;
  // Without logtostderr glog would copy to stderr and write files.
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  static std::optional<StderrSink> sink;
  sink.emplace(LogLines(program, format == "json"));
  return absl::OkStatus();
}

}  // namespace kaon::config
