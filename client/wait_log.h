// Logs what a caller of the library waits for, after each ClientOptions::wait_log_interval. The
// operation that waits owns it; any thread may create and destroy it.
#ifndef KAON_CLIENT_WAIT_LOG_H_
#define KAON_CLIENT_WAIT_LOG_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "client/runtime.h"

namespace kaon::client {

class WaitLog {
 public:
  // `what` completes "waited 10 s for "; nothing is logged if it returns "". `since` returns when
  // the wait began, InfiniteFuture while nothing waits; null: now. Both run on the loop, once more
  // perhaps after the destruction of this object.
  WaitLog(Runtime& runtime, std::function<std::string()> what,
          std::function<absl::Time()> since = nullptr);
  ~WaitLog();
  WaitLog(const WaitLog&) = delete;
  WaitLog& operator=(const WaitLog&) = delete;

 private:
  struct State;
  // Shared with the timer's task.
  const std::shared_ptr<State> state_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_WAIT_LOG_H_
