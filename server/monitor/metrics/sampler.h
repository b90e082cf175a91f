// Calls a function at once and then about every second, on a thread of its own. Owned by one
// server.
#ifndef KAON_SERVER_MONITOR_METRICS_SAMPLER_H_
#define KAON_SERVER_MONITOR_METRICS_SAMPLER_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::metrics {

class Sampler {
 public:
  // Starts the thread.
  explicit Sampler(std::function<void()> sample, absl::Duration period = absl::Seconds(1));
  // Calls Stop.
  ~Sampler();

  // Waits for a call that runs; none starts afterwards. Idempotent.
  void Stop();

 private:
  void Run();

  const std::function<void()> sample_;
  const absl::Duration period_;
  Mutex mu_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace kaon::metrics

#endif  // KAON_SERVER_MONITOR_METRICS_SAMPLER_H_
