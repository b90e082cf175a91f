// Holds the result of an asynchronous call of the C API. An operation of the C++ library fills it.
// The caller waits for it, or sets a callback. The kaon_future and the operation share it, because
// either may end first. Thread-safe.
#ifndef KAON_CLIENT_C_COMPLETION_H_
#define KAON_CLIENT_C_COMPLETION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "client/kaon/future.h"
#include "client/kaon/status.h"
#include "client/kaon/step_record.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"

namespace kaon::c {

class Completion {
 public:
  // Stores the result of a step, or of an operation without a value.
  void Set(Result<StepRecord> result) {
    std::optional<StepRecord> record;
    if (result.ok()) record = std::move(*result);
    Store(result.status(), std::move(record));
  }
  void Set(const Result<Done>& result) { Store(result.status(), std::nullopt); }

  // Returns false if there is no result after `timeout`.
  bool WaitFor(absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const absl::Time deadline = SteadyNow() + timeout;
    while (!ready_) {
      if (!stored_.WaitFor(mu_, deadline - SteadyNow()) && !ready_) return false;
    }
    return true;
  }

  // Only once there is a result; they do not change then.
  const Status& status() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  const std::optional<StepRecord>& record() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return record_; }

  // Calls `callback` once there is a result, which may be at once.
  void OnReady(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      if (!ready_) {
        callback_ = std::move(callback);
        return;
      }
    }
    callback();
  }

 private:
  void Store(Status status, std::optional<StepRecord> record) ABSL_LOCKS_EXCLUDED(mu_) {
    std::function<void()> callback;
    {
      MutexLock lock(mu_);
      status_ = std::move(status);
      record_ = std::move(record);
      ready_ = true;
      callback = std::move(callback_);
      callback_ = nullptr;
      // Under the lock: a waiter may destroy this object as soon as it has seen the result.
      stored_.NotifyAll();
    }
    if (callback) callback();
  }

  mutable Mutex mu_;
  mutable CondVar stored_;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);
  std::optional<StepRecord> record_ ABSL_GUARDED_BY(mu_);
  std::function<void()> callback_ ABSL_GUARDED_BY(mu_);
};

// Returns the completion of `future`, and sets `cancel` to the function that cancels it.
template <typename T>
std::shared_ptr<Completion> CompletionOf(Future<T> future, std::function<void()>& cancel) {
  const auto completion = std::make_shared<Completion>();
  // Shared with `cancel` alone; a Future is not copyable as a function must be.
  const auto stored = std::make_shared<Future<Done>>(std::move(future).Then(
      [completion](Result<T> result) { completion->Set(std::move(result)); }));
  cancel = [stored] { stored->Cancel(); };
  return completion;
}

}  // namespace kaon::c

#endif  // KAON_CLIENT_C_COMPLETION_H_
