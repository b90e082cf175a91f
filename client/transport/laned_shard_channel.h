// ShardChannel over several connections to one shard, the lanes of protocol.md section 4: one
// connection is served by one thread at a time at each end, so long pulls and pushes are divided
// among all of them. One object per shard; any thread.
#ifndef KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_
#define KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "client/transport/shard_channel.h"

namespace kaon::client {

// Shorter parts gain nothing.
inline constexpr uint64_t kLeastLaneBytes = 4 << 20;

// At least one lane, each over a connection of its own; shared with the calls. A pull takes one for
// each `least_lane_bytes` of its targets, a push all of them after that many. `on_bytes` is called
// from several threads at once then.
std::shared_ptr<ShardChannel> CreateLanedShardChannel(
    std::vector<std::shared_ptr<ShardChannel>> lanes, uint64_t least_lane_bytes = kLeastLaneBytes);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_LANED_SHARD_CHANNEL_H_
