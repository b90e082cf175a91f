#include "client/job_progress.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/backoff.h"
#include "client/job_call.h"
#include "client/transport/event_loop.h"
#include "client/wait_log.h"
#include "proto/status_macros.h"

namespace kaon::client {

absl::StatusOr<v1::JobDescription> RefreshJob(const JobContext& job, absl::Duration deadline) {
  KAON_RETURN_IF_ERROR(job.runtime().CheckUsable());
  KAON_ASSIGN_OR_RETURN(v1::JobDescription description,
                        LookUpJob(job.shared_runtime(), job.name(), deadline));
  job.NoteTimeline(description.timeline(), description.applied_step());
  if (!description.stopped_reason().empty()) {
    return absl::DataLossError(
        absl::StrCat("job ", job.name(), " stopped: ", description.stopped_reason()));
  }
  return description;
}

absl::StatusOr<uint64_t> WaitForWeights(const JobContext& job, absl::Duration timeout) {
  // Before the log, which takes a lock of the loop: in a child of fork() that may stay held.
  KAON_RETURN_IF_ERROR(job.runtime().CheckUsable());
  const absl::Duration call_deadline = job.runtime().call_deadline();
  const absl::Time deadline = EventLoop::Now() + timeout;
  const std::string what = absl::StrCat("weights of job ", job.name(), ": rank 0 loads them");
  const WaitLog log(job.runtime(), [what] { return what; });
  Backoff backoff(absl::Milliseconds(50), absl::Seconds(1), std::random_device()());
  for (int tries = 0;; ++tries) {
    // A timeout of 0 asks once, with the time of any call. Later questions have 1 ms at least.
    const absl::Duration left = std::max(deadline - EventLoop::Now(), absl::Milliseconds(1));
    const absl::StatusOr<v1::JobDescription> description = RefreshJob(
        job, timeout > absl::ZeroDuration() ? std::min(call_deadline, left) : call_deadline);
    if (description.ok() && description->weights_loaded()) return description->applied_step();
    if (!description.ok() && !absl::IsDeadlineExceeded(description.status())) {
      return description.status();
    }
    const absl::Duration delay = backoff.Delay(tries);
    if (EventLoop::Now() + delay >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("waited ", absl::FormatDuration(timeout),
                                                      " for ", what, description.ok() ? "" : "; ",
                                                      description.status().message()));
    }
    absl::SleepFor(delay);
  }
}

}  // namespace kaon::client
