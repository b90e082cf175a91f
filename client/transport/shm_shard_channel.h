// Implements ShardChannel over shared memory, for a shard on the same machine. Pushes and pulls use
// a session if there is one, otherwise the network (docs/formats.md). One object per shard; any
// thread.
#ifndef KAON_CLIENT_TRANSPORT_SHM_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_SHM_SHARD_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"
#include "client/transport/shm_lane.h"
#include "client/transport/transfer_counters.h"

namespace kaon::client {

// Requests a session from the shard at the other end of `channel` and opens it, in seconds at most.
// FAILED_PRECONDITION, RESOURCE_EXHAUSTED, UNIMPLEMENTED and UNAVAILABLE all mean that there is no
// session.
absl::StatusOr<std::unique_ptr<proto::ShmLink>> OpenShmSession(
    const std::shared_ptr<grpc::Channel>& channel);

struct ShmShardChannelOptions {
  // Name of the shard in the log.
  std::string name;
  ShmLane::Open open;
  // Shared with the calls that run on it.
  std::shared_ptr<ShardChannel> network;
  // A call fails if no session can be opened, instead of using the network.
  bool required = false;
  // Time after a refusal before a session is requested again. Each further refusal doubles it, up
  // to 1 hour.
  absl::Duration retry_after = absl::Minutes(1);
  // Both are shared with the calls.
  std::shared_ptr<CallTracker> tracker;
  std::shared_ptr<TransferCounters> counters;
};

std::shared_ptr<ShardChannel> CreateShmShardChannel(ShmShardChannelOptions options);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_SHARD_CHANNEL_H_
