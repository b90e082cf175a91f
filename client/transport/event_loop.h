// The client's one thread of its own: runs tasks in the order posted, and timers. Worker sessions
// and retries live on it, so they need no locks. Owned by the client's Runtime; Post and PostAt may
// be called from any thread, tasks run on the loop's thread and must not block.
#ifndef KAON_CLIENT_TRANSPORT_EVENT_LOOP_H_
#define KAON_CLIENT_TRANSPORT_EVENT_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::client {

class EventLoop {
 public:
  using Task = std::function<void()>;
  using Timer = std::pair<absl::Time, uint64_t>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // A clock that never jumps. Its zero means nothing: only for PostAt and differences.
  static absl::Time Now();

  // After Stop, tasks are dropped without running.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mu_);
  Timer PostAt(absl::Time at, Task task) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops the task unless it has run or is running.
  void Cancel(const Timer& timer) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the task that is running, drops the others. Not from the loop's thread.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the process if a task of the loop, on_rewind for one, is about to wait for the loop: it
  // would do so for ever. `what` is what it called.
  void CheckNotOnLoop(const char* what) const;

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar posted_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  uint64_t last_timer_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<Timer, Task> timers_ ABSL_GUARDED_BY(mu_);

  // Last: it uses everything above.
  std::thread thread_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_EVENT_LOOP_H_
