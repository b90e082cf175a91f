// Facts that each line of the JSON log has as keys, where they are known. Job, step and shard are
// of the process, which has one log. The peer is of the thread that writes the line. The trace is
// of the thread's call, else of the newest step that a coordinator has begun or a shard accepted.
// Any thread.
#ifndef KAON_SERVER_CONFIG_LOG_FACTS_H_
#define KAON_SERVER_CONFIG_LOG_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace kaon::config {

struct LogFacts {
  // Empty = none.
  std::string job;
  // Newest decided train step of the job.
  std::optional<uint64_t> step;
  // Index of this shard.
  std::optional<uint32_t> shard;
  // Caller that the line is about; empty = none.
  std::string peer;
  // Trace that the call or the step is part of: 32 hexadecimal digits; empty = none.
  std::string trace_id;
};

// Sets the job and its newest train step. Without `step` the last step of the same job stays. An
// empty job clears both.
void SetLogJob(absl::string_view job, std::optional<uint64_t> step);
void SetLogShard(uint32_t shard);
// Sets the trace of the newest step, as a rank names it; empty = none. The trace of the lowest rank
// that names one counts.
void SetLogTrace(uint64_t step, uint32_t rank, absl::string_view trace_id);

// Names the peer of all lines that this thread writes while the object lives. The innermost object
// counts.
class LogPeer {
 public:
  explicit LogPeer(absl::string_view peer);
  ~LogPeer();
  LogPeer(const LogPeer&) = delete;
  LogPeer& operator=(const LogPeer&) = delete;

 private:
  const std::string before_;
};

// Names the trace of all lines that this thread writes while the object lives, unless `trace_id` is
// empty.
class LogTrace {
 public:
  explicit LogTrace(absl::string_view trace_id);
  ~LogTrace();
  LogTrace(const LogTrace&) = delete;
  LogTrace& operator=(const LogTrace&) = delete;

 private:
  const std::string before_;
};

// Has every line written that this thread logs while the object lives, however many lines their
// places have had.
class LogAlways {
 public:
  LogAlways();
  ~LogAlways();
  LogAlways(const LogAlways&) = delete;
  LogAlways& operator=(const LogAlways&) = delete;
};

// Returns whether a LogAlways of this thread lives.
bool LogsAlways();

// Returns the facts as this thread's next line has them.
LogFacts CurrentLogFacts();

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_LOG_FACTS_H_
