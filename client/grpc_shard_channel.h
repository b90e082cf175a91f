// ShardChannel over gRPC: generic bidirectional streams of ByteBuffers in the reactor API, so that
// no payload passes a serializer (protocol.md section 4). One object per shard; any thread.
#ifndef KAON_CLIENT_GRPC_SHARD_CHANNEL_H_
#define KAON_CLIENT_GRPC_SHARD_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/call_tracker.h"
#include "client/kaon/client.h"
#include "client/shard_channel.h"

namespace kaon::client {

// Connects on first use. Errors as CreateChannel. The calls are counted in `tracker`, shared with
// them.
absl::StatusOr<std::shared_ptr<ShardChannel>> CreateGrpcShardChannel(
    const std::string& address, const TlsFiles& tls, std::shared_ptr<CallTracker> tracker);

}  // namespace kaon::client

#endif  // KAON_CLIENT_GRPC_SHARD_CHANNEL_H_
