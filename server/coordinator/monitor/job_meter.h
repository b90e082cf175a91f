// Counts the train steps that a coordinator decides, and keeps the newest one for the metrics.
// Thread-safe.
#ifndef KAON_SERVER_COORDINATOR_MONITOR_JOB_METER_H_
#define KAON_SERVER_COORDINATOR_MONITOR_JOB_METER_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/mutex.h"
#include "server/monitor/metrics/metric_page.h"

namespace kaon::coordinator {

// Train steps since the process started.
struct JobNumbers {
  uint64_t applied = 0;
  uint64_t skipped = 0;
  // Time between decisions of successive steps.
  metrics::SecondsHistogram step_seconds;
  // Newest decided train step; null before the first.
  std::shared_ptr<const v1::StepRecord> newest;
  // Milliseconds since 1970 UTC; 0 before the first decision of any kind.
  int64_t decided_unix_millis = 0;
};

class JobMeter {
 public:
  // Counts a decided entry, once. `now` is that of SteadyNow().
  void Note(const v1::StepRecord& record, int64_t unix_millis, absl::Time now);
  JobNumbers Read() const;

 private:
  mutable Mutex mu_;
  JobNumbers numbers_ ABSL_GUARDED_BY(mu_);
  absl::Time decided_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MONITOR_JOB_METER_H_
