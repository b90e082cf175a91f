// Implements ShardChannel for a client whose tensors may be on a device. Pushes send them over
// NCCL, and everything else over one connection. Pulls use NCCL for targets on a device, once a
// push of the job has a session, and `pulls` for all others. One object per shard; any thread.
#ifndef KAON_CLIENT_TRANSPORT_NCCL_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_NCCL_SHARD_CHANNEL_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"
#include "client/transport/transfer_counters.h"
#include "kaon/v1/shard_nccl.pb.h"
#include "kernels/nccl/abort_queue.h"
#include "kernels/nccl/device_link.h"
#include "kernels/nccl/link_session.h"

namespace kaon::client {

// Asks the shard at the other end of `channel` for a session, in 2 seconds at most.
absl::StatusOr<v1::OpenNcclSessionResponse> OpenNcclSession(
    const std::shared_ptr<grpc::Channel>& channel, const v1::OpenNcclSessionRequest& request);

struct NcclShardChannelOptions {
  // Name of the shard in the log.
  std::string name;
  // Asks for a session; may take seconds.
  std::function<absl::StatusOr<v1::OpenNcclSessionResponse>(const v1::OpenNcclSessionRequest&)>
      open;
  // Connection of calls that pull over NCCL.
  std::shared_ptr<grpc::Channel> connection;
  // Shared with the whole client, and with aborts that hang.
  std::shared_ptr<kernels::DeviceLink> link;
  std::shared_ptr<kernels::AbortQueue> aborts;
  // Carries pushes: a channel over gRPC. Shared with them.
  std::shared_ptr<ShardChannel> pushes;
  std::shared_ptr<ShardChannel> pulls;
  kernels::LinkSession::Options session;
  // See NcclLane::Options.
  absl::Duration retry_after = absl::Seconds(10);
  // A tensor on a device fails its push if no session can be opened, instead of using the network.
  bool required = false;
  // Both are shared with the calls.
  std::shared_ptr<CallTracker> tracker;
  std::shared_ptr<TransferCounters> counters;
};

std::shared_ptr<ShardChannel> CreateNcclShardChannel(NcclShardChannelOptions options);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_NCCL_SHARD_CHANNEL_H_
