// A thread that looks at something again and again, until its owner is destroyed.
#ifndef KAON_SERVER_LISTENER_REPEATING_THREAD_H_
#define KAON_SERVER_LISTENER_REPEATING_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::listener {

class RepeatingThread {
 public:
  // Calls `look` on the thread, without a lock held: first after `first`, and then after each time
  // that it returns.
  RepeatingThread(absl::Duration first, std::function<absl::Duration()> look);
  // Waits for a call in progress.
  ~RepeatingThread();

 private:
  void Run(absl::Duration wait);

  const std::function<absl::Duration()> look_;
  Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_REPEATING_THREAD_H_
