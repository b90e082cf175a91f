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
};

OfProcess& Process() {
  static OfProcess process;
  return process;
}

std::string& PeerOfThread() {
  thread_local std::string peer;
  return peer;
}

}  // namespace

void SetLogJob(absl::string_view job, std::optional<uint64_t> step) {
  OfProcess& process = Process();
  MutexLock lock(process.mu);
  LogFacts& facts = process.facts;
  if (facts.job != job) {
    facts.job = std::string(job);
    facts.step.reset();
  }
  if (step && !job.empty()) facts.step = step;
}

void SetLogShard(uint32_t shard) {
  OfProcess& process = Process();
  MutexLock lock(process.mu);
  process.facts.shard = shard;
}

LogPeer::LogPeer(absl::string_view peer)
    : before_(std::exchange(PeerOfThread(), std::string(peer))) {}

LogPeer::~LogPeer() { PeerOfThread() = before_; }

LogFacts CurrentLogFacts() {
  OfProcess& process = Process();
  LogFacts facts;
  {
    MutexLock lock(process.mu);
    facts = process.facts;
  }
  facts.peer = PeerOfThread();
  return facts;
}

}  // namespace kaon::config
