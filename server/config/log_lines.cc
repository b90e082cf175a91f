#include "server/config/log_lines.h"

#include <glog/logging.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/program_log.h"
#include "server/config/log_facts.h"

namespace kaon::config {

namespace {

constexpr const char* kNames[] = {"info", "warning", "error", "fatal"};
constexpr char kLetters[] = "IWEF";
constexpr absl::Duration kStart = absl::Minutes(1);

}  // namespace

std::string LogLines::LinesOf(const LogMessage& message) {
  // A clock may be set back.
  if (!start_ || message.time < *start_) start_ = message.time;
  const bool is_last = message.severity == google::GLOG_FATAL;
  std::string lines = Ended(is_last ? absl::InfiniteFuture() : message.time, message.time);
  Second& second = seconds_[Place(message.file, message.line)];
  if (message.time - second.begin >= absl::Seconds(1) || message.time < second.begin) {
    second = {message.time};
  }
  const bool always = is_last || LogsAlways() ||
                      (message.severity == google::GLOG_ERROR && message.time - *start_ < kStart);
  if (!always && second.written >= kMostASecond) {
    ++second.left_out;
    ++num_left_out_;
    return lines;
  }
  ++second.written;
  return absl::StrCat(lines, Line(message, CurrentLogFacts()));
}

std::string LogLines::Ended(absl::Time now, absl::Time stamp) {
  std::string lines;
  if (num_left_out_ == 0) return lines;
  for (auto& [place, second] : seconds_) {
    const bool goes_on = now - second.begin < absl::Seconds(1) && now >= second.begin;
    if (second.left_out == 0 || goes_on) continue;
    const std::string text = absl::StrCat(second.left_out, " lines of this place were left out");
    // The thread that logs now has nothing to do with it.
    LogFacts facts = CurrentLogFacts();
    facts.peer.clear();
    facts.trace_id.clear();
    absl::StrAppend(&lines,
                    Line({google::GLOG_WARNING, place.first, place.second, stamp, text}, facts));
    num_left_out_ -= second.left_out;
    second.left_out = 0;
  }
  return lines;
}

std::string LogLines::Line(const LogMessage& message, const LogFacts& facts) const {
  if (!json_) {
    return absl::StrCat(
        proto::LogPrefix(message.time, kLetters[message.severity], message.file, message.line), " ",
        message.text, "\n");
  }
  nlohmann::ordered_json object = {{"ts", proto::LogTime(message.time)},
                                   {"level", kNames[message.severity]},
                                   {"program", program_},
                                   {"thread", gettid()},
                                   {"source", absl::StrCat(message.file, ":", message.line)},
                                   {"msg", std::string(message.text)}};
  if (!facts.job.empty()) object["job"] = facts.job;
  if (facts.step) object["step"] = *facts.step;
  if (facts.shard) object["shard"] = *facts.shard;
  if (!facts.peer.empty()) object["peer"] = facts.peer;
  if (!facts.trace_id.empty()) object["trace_id"] = facts.trace_id;
  return absl::StrCat(object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace),
                      "\n");
}

}  // namespace kaon::config
