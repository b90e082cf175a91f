// One Job::Pull: a stream from every shard that owns a target, each tried again while its shard is
// away, all or an error. Shared by its streams; runs on the client's event loop.
#ifndef KAON_CLIENT_PULL_OPERATION_H_
#define KAON_CLIENT_PULL_OPERATION_H_

#include <memory>
#include <vector>

#include "client/job_context.h"
#include "client/kaon/client.h"

namespace kaon::client {

// Any thread but the loop's. INVALID_ARGUMENT at once, naming both values, for an unknown or
// repeated parameter, a wrong element count, or dtypes that differ. The memory of the targets is
// not written any more when the future is ready.
Future<Done> StartPull(std::shared_ptr<const JobContext> job, uint64_t step,
                       const std::vector<PullTarget>& targets);

}  // namespace kaon::client

#endif  // KAON_CLIENT_PULL_OPERATION_H_
