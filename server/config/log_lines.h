// Makes the lines of a server's log out of messages, as text or as JSON objects, and limits those
// of each place in the code. Pure but for the facts of log_facts.h; one thread at a time.
#ifndef KAON_SERVER_CONFIG_LOG_LINES_H_
#define KAON_SERVER_CONFIG_LOG_LINES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/config/log_facts.h"

namespace kaon::config {

struct LogMessage {
  // One of glog's.
  int severity = 0;
  // Place in the code, without folders.
  absl::string_view file;
  int line = 0;
  absl::Time time;
  absl::string_view text;
};

class LogLines {
 public:
  // Lines of one place that a second may have. The others are counted.
  static constexpr int kMostASecond = 10;

  LogLines(std::string program, bool json) : program_(std::move(program)), json_(json) {}

  // Returns the lines to write now. Counts of lines that were left out in seconds that have ended
  // come first. Then comes the message, unless its place has had enough. Fatal messages, errors of
  // the first minute and messages under a LogAlways are always written.
  std::string LinesOf(const LogMessage& message);

 private:
  using Place = std::pair<std::string, int>;
  struct Second {
    absl::Time begin = absl::InfinitePast();
    int written = 0;
    uint64_t left_out = 0;
  };

  std::string Line(const LogMessage& message, const LogFacts& facts) const;
  // Returns the lines, with the time `stamp`, about what was left out in seconds that ended by
  // `now`.
  std::string Ended(absl::Time now, absl::Time stamp);

  const std::string program_;
  const bool json_;
  // Time of the first message.
  std::optional<absl::Time> start_;
  // Bounded by the places in the code.
  std::map<Place, Second> seconds_;
  uint64_t num_left_out_ = 0;
};

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_LOG_LINES_H_
