#include "client/transport/event_loop.h"

#include <glog/logging.h>

#include <utility>

#include "kernels/steady_clock.h"

namespace kaon::client {
namespace {

// The loop that runs on this thread.
thread_local const EventLoop* current_loop = nullptr;

}  // namespace

EventLoop::EventLoop() : thread_([this] { Run(); }) {}

EventLoop::~EventLoop() { Stop(); }

absl::Time EventLoop::Now() { return SteadyNow(); }

void EventLoop::Post(Task task) {
  MutexLock lock(mu_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  posted_.NotifyOne();
}

EventLoop::Timer EventLoop::PostAt(absl::Time at, Task task) {
  MutexLock lock(mu_);
  const Timer timer = {at, ++last_timer_};
  if (stopping_) return timer;
  timers_.emplace(timer, std::move(task));
  posted_.NotifyOne();
  return timer;
}

void EventLoop::Cancel(const Timer& timer) {
  Task task;
  {
    MutexLock lock(mu_);
    const auto found = timers_.find(timer);
    if (found == timers_.end()) return;
    // Destroy the task outside the lock: an object that it owns may post.
    task = std::move(found->second);
    timers_.erase(found);
  }
}

void EventLoop::Stop() {
  // Destroyed outside the lock: an object that a task owns may post.
  std::deque<Task> tasks;
  std::map<Timer, Task> timers;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    tasks.swap(tasks_);
    timers.swap(timers_);
    posted_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void EventLoop::CheckNotOnLoop(const char* what) const {
  CHECK(current_loop != this) << what << " inside a callback of the client, which must not block";
}

void EventLoop::Run() {
  current_loop = this;
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      while (!stopping_ && tasks_.empty()) {
        if (timers_.empty()) {
          posted_.Wait(mu_);
          continue;
        }
        const absl::Duration wait = timers_.begin()->first.first - Now();
        if (wait > absl::ZeroDuration()) {
          posted_.WaitFor(mu_, wait);
          continue;
        }
        tasks_.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace kaon::client
