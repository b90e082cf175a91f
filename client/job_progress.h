// Asks the coordinators how far a job is: now, or until it has weights. Blocks; call these
// functions on any thread but the client's event loop.
#ifndef KAON_CLIENT_JOB_PROGRESS_H_
#define KAON_CLIENT_JOB_PROGRESS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/job_context.h"
#include "kaon/v1/coordinator.pb.h"

namespace kaon::client {

// Looks the job up and notes its timeline. DATA_LOSS if the job stopped; otherwise errors of
// LookUpJob.
absl::StatusOr<v1::JobDescription> RefreshJob(const JobContext& job, absl::Duration deadline);

// Does the work of Job::WaitForWeights.
absl::StatusOr<uint64_t> WaitForWeights(const JobContext& job, absl::Duration timeout);

}  // namespace kaon::client

#endif  // KAON_CLIENT_JOB_PROGRESS_H_
