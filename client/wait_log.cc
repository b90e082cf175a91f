#include "client/wait_log.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::client {

struct WaitLog::State : public std::enable_shared_from_this<State> {
  State(Runtime& runtime, std::function<std::string()> what, std::function<absl::Time()> since)
      : runtime(runtime), what(std::move(what)), since(std::move(since)) {}

  void Arm(absl::Time at) {
    MutexLock lock(mu);
    if (over) return;
    timer = runtime.loop().PostAt(at, [weak = weak_from_this()] {
      if (const std::shared_ptr<State> self = weak.lock()) self->Log();
    });
  }

  void End() {
    MutexLock lock(mu);
    over = true;
    runtime.loop().Cancel(timer);
  }

  void Log() {
    const absl::Time now = EventLoop::Now();
    const absl::Time begin = since == nullptr ? creation : since();
    const absl::Duration waited = now - begin;
    if (waited < interval) return Arm(std::min(begin, now) + interval);
    const std::string text = what();
    LOG_IF(WARNING, !text.empty())
        << "waited " << absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(100)))
        << " for " << text;
    Arm(now + interval);
  }

  Runtime& runtime;
  const std::function<std::string()> what;
  const std::function<absl::Time()> since;
  const absl::Duration interval = absl::FromChrono(runtime.options().wait_log_interval);
  const absl::Time creation = EventLoop::Now();

  Mutex mu;
  bool over ABSL_GUARDED_BY(mu) = false;
  EventLoop::Timer timer ABSL_GUARDED_BY(mu);
};

WaitLog::WaitLog(Runtime& runtime, std::function<std::string()> what,
                 std::function<absl::Time()> since)
    : state_(std::make_shared<State>(runtime, std::move(what), std::move(since))) {
  state_->Arm(state_->creation + state_->interval);
}

WaitLog::~WaitLog() { state_->End(); }

}  // namespace kaon::client
