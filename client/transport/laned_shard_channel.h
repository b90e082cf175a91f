// Implements ShardChannel over several connections to one shard, the lanes of protocol.md section
// 4. At each end, one thread at a time serves a connection. So long pulls and pushes are divided
// among all lanes. One object per shard; any thread.
#ifndef KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client/transport/shard_channel.h"

namespace kaon::client {

// Shorter parts gain nothing.
inline constexpr uint64_t kLeastLaneBytes = 4 << 20;

// Returns a channel over one or more lanes; each has its own connection and is shared with its
// calls. A pull uses one lane for each `least_lane_bytes` of its targets. A push opens the other
// lanes after that many bytes. With several lanes, `on_bytes` is called on several threads
// concurrently.
std::shared_ptr<ShardChannel> CreateLanedShardChannel(
    std::vector<std::shared_ptr<ShardChannel>> lanes, uint64_t least_lane_bytes = kLeastLaneBytes);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_
