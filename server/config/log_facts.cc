#include "server/config/log_facts.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/mutex.h"

namespace kaon::config {

namespace {

// A process has one log, so it has one of these.
struct OfProcess {
  Mutex mu;
  LogFacts facts ABSL_GUARDED_BY(mu);
  // Step of the trace, and the rank that named the trace.
  uint64_t traced_step ABSL_GUARDED_BY(mu) = 0;
  uint32_t traced_rank ABSL_GUARDED_BY(mu) = 0;
};

OfProcess& Process() {
  static OfProcess process;
  return process;
}

std::string& PeerOfThread() {
  thread_local std::string peer;
  return peer;
}

int& AlwaysOfThread() {
  thread_local int always = 0;
  return always;
}

std::string& TraceOfThread() {
  thread_local std::string trace_id;
  return trace_id;
}

}  // namespace

void SetLogJob(absl::string_view job, std::optional<uint64_t> step) {
  OfProcess& process = Process();
  MutexLock lock(process.mu);
  LogFacts& facts = process.facts;
  if (facts.job != job) {
    facts.job = std::string(job);
    facts.step.reset();
    facts.trace_id.clear();
  }
  if (step && !job.empty()) facts.step = step;
}

void SetLogShard(uint32_t shard) {
  OfProcess& process = Process();
  MutexLock lock(process.mu);
  process.facts.shard = shard;
}

void SetLogTrace(uint64_t step, uint32_t rank, absl::string_view trace_id) {
  OfProcess& process = Process();
  MutexLock lock(process.mu);
  const bool same_step = step == process.traced_step;
  const bool named = same_step && !process.facts.trace_id.empty();
  if (same_step && (trace_id.empty() || (named && rank > process.traced_rank))) return;
  process.traced_step = step;
  process.traced_rank = rank;
  process.facts.trace_id = std::string(trace_id);
}

LogPeer::LogPeer(absl::string_view peer)
    : before_(std::exchange(PeerOfThread(), std::string(peer))) {}

LogPeer::~LogPeer() { PeerOfThread() = before_; }

LogTrace::LogTrace(absl::string_view trace_id)
    : before_(trace_id.empty() ? TraceOfThread()
                               : std::exchange(TraceOfThread(), std::string(trace_id))) {}

LogTrace::~LogTrace() { TraceOfThread() = before_; }

LogAlways::LogAlways() { ++AlwaysOfThread(); }

LogAlways::~LogAlways() { --AlwaysOfThread(); }

bool LogsAlways() { return AlwaysOfThread() > 0; }

LogFacts CurrentLogFacts() {
  OfProcess& process = Process();
  LogFacts facts;
  {
    MutexLock lock(process.mu);
    facts = process.facts;
  }
  facts.peer = PeerOfThread();
  if (!TraceOfThread().empty()) facts.trace_id = TraceOfThread();
  return facts;
}

}  // namespace kaon::config
