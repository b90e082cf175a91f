// ShardChannel over shared memory, for a shard on the same machine: pushes and pulls take a session
// where there is one, and the network otherwise (docs/formats.md). One object per shard; any
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

// Asks the shard at the other end of `channel` for a session and opens it, in seconds at most.
// FAILED_PRECONDITION, RESOURCE_EXHAUSTED, UNIMPLEMENTED, UNAVAILABLE: there is none.
absl::StatusOr<std::unique_ptr<proto::ShmLink>> OpenShmSession(
    const std::shared_ptr<grpc::Channel>& channel);

struct ShmShardChannelOptions {
  // Of the shard, for the log.
  std::string name;
  ShmLane::Open open;
  // Shared with the calls that it carries out.
  std::shared_ptr<ShardChannel> network;
  // A call for which no session can be opened fails instead of using the network.
  bool required = false;
  // After a refusal, before a session is asked for again; twice as long after each further one, up
  // to an hour.
  absl::Duration retry_after = absl::Minutes(1);
  // Both shared with the calls.
  std::shared_ptr<CallTracker> tracker;
  std::shared_ptr<TransferCounters> counters;
};

std::shared_ptr<ShardChannel> CreateShmShardChannel(ShmShardChannelOptions options);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_SHM_SHARD_CHANNEL_H_
