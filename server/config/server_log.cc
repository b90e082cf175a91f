#include "server/config/server_log.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/text.h"
#include "server/config/log_facts.h"

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

// Writes each message as a JSON object. glog calls it under a lock of its own.
class JsonSink final : public google::LogSink {
 public:
  explicit JsonSink(std::string program) : program_(std::move(program)) {}

  void send(google::LogSeverity severity, const char*, const char* file, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    static constexpr const char* kNames[] = {"info", "warning", "error", "fatal"};
    const absl::Time at = absl::FromTimeT(time.timestamp()) + absl::Microseconds(time.usec());
    nlohmann::ordered_json object = {
        {"ts", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", at, absl::UTCTimeZone())},
        {"level", kNames[severity]},
        {"program", program_},
        {"thread", gettid()},
        {"source", absl::StrCat(file, ":", line)},
        {"msg", std::string(message, size)}};
    const LogFacts facts = CurrentLogFacts();
    if (!facts.job.empty()) object["job"] = facts.job;
    if (facts.step) object["step"] = *facts.step;
    if (facts.shard) object["shard"] = *facts.shard;
    if (!facts.peer.empty()) object["peer"] = facts.peer;
    if (!facts.trace_id.empty()) object["trace_id"] = facts.trace_id;
    const std::string text = absl::StrCat(
        object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), "\n");
    // One call, so that lines of other programs do not come between.
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
  }

 private:
  const std::string program_;
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
  static JsonSink sink(program);
  google::RemoveLogSink(&sink);
  const bool json = format == "json";
  FLAGS_logtostderr = !json;
  // Without logtostderr glog would copy to stderr and write files.
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  for (int severity = 0; json && severity < google::NUM_SEVERITIES; ++severity) {
    google::SetLogDestination(severity, "");
  }
  if (json) google::AddLogSink(&sink);
  return absl::OkStatus();
}

}  // namespace kaon::config
