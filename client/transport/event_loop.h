// Runs the client's only thread of its own: tasks in the order posted, and timers. Worker sessions
// and retries run on it, so they need no locks. Owned by the client's Runtime. Post and PostAt may
// be called on any thread; tasks run on the loop's thread and must not block.
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

  // Returns the time of a clock that never jumps. Its zero has no meaning: use it only for PostAt
  // and differences.
  static absl::Time Now();

  // After Stop, both drop the task without running it.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mu_);
  Timer PostAt(absl::Time at, Task task) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops the task unless it has run or is running.
  void Cancel(const Timer& timer) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for the running task and drops the others. Do not call it on the loop's thread.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  // Aborts the process if the calling thread is the loop's: a task, on_rewind for example, must not
  // wait for its own loop. `what` names the call in the message.
  void CheckNotOnLoop(const char* what) const;

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar posted_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mu_);
  uint64_t last_timer_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<Timer, Task> timers_ ABSL_GUARDED_BY(mu_);

  // Last member: the thread uses everything above.
  std::thread thread_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_EVENT_LOOP_H_
