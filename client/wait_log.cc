#include "client/wait_log.h"

#include <glog/logging.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::client {

struct WaitLog::State : public std::enable_shared_from_this<State> {
  State(Runtime& runtime, std::function<std::string()> what)
      : runtime(runtime), what(std::move(what)) {}

  void Arm() {
    const absl::Duration interval = absl::FromChrono(runtime.options().wait_log_interval);
    MutexLock lock(mu);
    if (over) return;
    timer = runtime.loop().PostAt(EventLoop::Now() + interval, [weak = weak_from_this()] {
      if (const std::shared_ptr<State> self = weak.lock()) self->Log();
    });
  }

  void End() {
    MutexLock lock(mu);
    over = true;
    runtime.loop().Cancel(timer);
  }

  void Log() {
    const std::string text = what();
    const absl::Duration waited = absl::Trunc(EventLoop::Now() - begin, absl::Milliseconds(100));
    LOG_IF(WARNING, !text.empty()) << "waited " << absl::FormatDuration(waited) << " for " << text;
    Arm();
  }

  Runtime& runtime;
  const std::function<std::string()> what;
  const absl::Time begin = EventLoop::Now();

  Mutex mu;
  bool over ABSL_GUARDED_BY(mu) = false;
  EventLoop::Timer timer ABSL_GUARDED_BY(mu);
};

WaitLog::WaitLog(Runtime& runtime, std::function<std::string()> what)
    : state_(std::make_shared<State>(runtime, std::move(what))) {
  state_->Arm();
}

WaitLog::~WaitLog() { state_->End(); }

}  // namespace kaon::client
