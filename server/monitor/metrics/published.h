// The newest value that one thread publishes and others read. Reading takes no longer than a copy
// of a pointer. Thread-safe.
#ifndef KAON_SERVER_MONITOR_METRICS_PUBLISHED_H_
#define KAON_SERVER_MONITOR_METRICS_PUBLISHED_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"

namespace kaon::metrics {

template <typename T>
class Published {
 public:
  // Replaces the value.
  void Set(T value) {
    // It has the old value in the end, which is freed without the lock.
    auto shared = std::make_shared<const T>(std::move(value));
    MutexLock lock(mu_);
    value_.swap(shared);
    at_ = SteadyNow();
    ++version_;
    changed_.NotifyAll();
  }

  // Returns null before the first value.
  std::shared_ptr<const T> Get() const {
    MutexLock lock(mu_);
    return value_;
  }
  // Returns how long ago the value was set; infinite before the first.
  absl::Duration Age() const {
    MutexLock lock(mu_);
    return SteadyNow() - at_;
  }
  // Waits for a value after the one of `version`, at most until `deadline`, and sets `version` to
  // that of the value that is there then. Returns false if that is no other one.
  bool AwaitNext(uint64_t* version, absl::Time deadline) const {
    MutexLock lock(mu_);
    while (version_ == *version && SteadyNow() < deadline) {
      changed_.WaitFor(mu_, deadline - SteadyNow());
    }
    return std::exchange(*version, version_) != version_;
  }

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mu_);
  absl::Time at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_PUBLISHED_H_
