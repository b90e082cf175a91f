// Runs one Job::Pull: one stream from every shard that owns a target. A stream is retried while its
// shard is away. The pull delivers all targets or fails. Shared by its streams; runs on the
// client's event loop.
#ifndef KAON_CLIENT_PULL_OPERATION_H_
#define KAON_CLIENT_PULL_OPERATION_H_

#include <memory>
#include <vector>

#include "client/job_context.h"
#include "client/kaon/client.h"

namespace kaon::client {

// Call it on any thread but the loop's. An unknown or repeated parameter, a wrong element count or
// mixed dtypes give INVALID_ARGUMENT at once, with the wrong value and the expected one. Once the
// future is ready, the library no longer writes to the targets.
Future<Done> StartPull(std::shared_ptr<const JobContext> job, uint64_t step,
                       const std::vector<PullTarget>& targets);

}  // namespace kaon::client

#endif  // KAON_CLIENT_PULL_OPERATION_H_
