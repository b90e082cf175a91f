// The project's mutex: std::mutex with Clang's thread-safety attributes (docs/adr/0006-mutex.md).
// It is in kernels/, because every folder except proto/ may include from there.
#ifndef KAON_KERNELS_MUTEX_H_
#define KAON_KERNELS_MUTEX_H_

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace kaon {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

class CondVar {
 public:
  void Wait(Mutex& mu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Waits for a notification. Returns false if `timeout` passed first. Waits at most 100 years.
  bool WaitFor(Mutex& mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    // The clock overflows for now plus more than about 290 years.
    constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const auto wait = absl::ToChronoNanoseconds(std::min(timeout, kLongest));
    const bool notified = cv_.wait_for(lock, wait) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyAll() { cv_.notify_all(); }
  void NotifyOne() { cv_.notify_one(); }

 private:
  std::condition_variable cv_;
};

}  // namespace kaon

#endif  // KAON_KERNELS_MUTEX_H_
