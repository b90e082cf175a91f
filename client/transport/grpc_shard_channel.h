// Implements ShardChannel over gRPC. Generic bidirectional streams of ByteBuffers in the reactor
// API keep payloads out of any serializer (protocol.md section 4). One object per shard; any
// thread.
#ifndef KAON_CLIENT_TRANSPORT_GRPC_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_GRPC_SHARD_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>

#include "client/transport/call_tracker.h"
#include "client/transport/shard_channel.h"

namespace kaon::client {

// Returns a channel over `channel`, which its calls share; `tracker` counts the calls.
std::shared_ptr<ShardChannel> CreateGrpcShardChannel(std::shared_ptr<grpc::Channel> channel,
                                                     std::shared_ptr<CallTracker> tracker);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_GRPC_SHARD_CHANNEL_H_
