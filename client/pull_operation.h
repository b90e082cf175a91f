// Runs one Job::Pull: one stream from every shard that owns a target. A stream is retried while its
// shard is away. The pull delivers all targets or fails. Shared by its streams; runs on the
// client's event loop.
#ifndef KAON_CLIENT_PULL_OPERATION_H_
#define KAON_CLIENT_PULL_OPERATION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/job_context.h"
#include "client/kaon/job.h"

namespace kaon::client {

// Returns the targets with the ids of those that are named. INVALID_ARGUMENT for an unknown or
// repeated parameter, a wrong element count or mixed dtypes, with the wrong value and the expected
// one. Any thread.
absl::StatusOr<std::vector<PullTarget>> CheckTargets(const JobContext& job,
                                                     std::vector<PullTarget> targets);

// Returns errors of CheckTargets at once. Once the future is ready, the library no longer writes
// to the targets. Any thread.
Future<Done> StartPull(std::shared_ptr<const JobContext> job, uint64_t step,
                       std::vector<PullTarget> targets);

}  // namespace kaon::client

#endif  // KAON_CLIENT_PULL_OPERATION_H_
