#include "server/listener/repeating_thread.h"

#include <utility>

#include "kernels/steady_clock.h"

namespace kaon::listener {

RepeatingThread::RepeatingThread(absl::Duration first, std::function<absl::Duration()> look)
    : look_(std::move(look)), thread_([this, first] { Run(first); }) {}

RepeatingThread::~RepeatingThread() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
    stop_.NotifyAll();
  }
  thread_.join();
}

void RepeatingThread::Run(absl::Duration wait) {
  while (true) {
    {
      MutexLock lock(mu_);
      const absl::Time next = SteadyNow() + wait;
      while (!stopped_ && SteadyNow() < next) stop_.WaitFor(mu_, next - SteadyNow());
      if (stopped_) return;
    }
    wait = look_();
  }
}

}  // namespace kaon::listener
