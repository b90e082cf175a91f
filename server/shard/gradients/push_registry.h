// The push streams that are open on a shard, and the lanes that have joined them: who sends what a
// lane brings, and what ends with what. Plain bookkeeping, no gradients; owned by
// GradientAccumulator, under its lock.
#ifndef KAON_SERVER_SHARD_GRADIENTS_PUSH_REGISTRY_H_
#define KAON_SERVER_SHARD_GRADIENTS_PUSH_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shard/gradients/open_push.h"

namespace kaon::shard {

class PushRegistry {
 public:
  // A push over several connections has one stream that opens and finishes it, and lanes.
  static constexpr uint32_t kMostLanes = 3;

  struct Stream {
    uint32_t rank = 0;
    uint64_t generation = 0;
    PushCallbacks callbacks;
    // The stream that a lane has joined.
    std::optional<PushStreamId> joined;
    // How many have joined this one since it was opened.
    uint32_t num_lanes = 0;
  };
  // To be made once no lock is held.
  using Calls = std::vector<std::function<void()>>;

  PushStreamId Add(uint32_t rank, uint64_t generation, PushCallbacks callbacks);
  // A lane of `push`. ABORTED if that is over, INVALID_ARGUMENT if it is another rank's or a lane
  // itself, RESOURCE_EXHAUSTED if it has kMostLanes.
  absl::StatusOr<PushStreamId> Join(PushStreamId push, uint32_t rank, PushCallbacks callbacks);

  // ABORTED if it is over. Valid until something is added or ended.
  absl::StatusOr<const Stream*> Find(PushStreamId id) const;

  // Ends it and its lanes, and tells them; nothing if it is over.
  void End(PushStreamId id, const absl::Status& status, Calls* calls);
  void EndAll(const absl::Status& status, Calls* calls);
  // Its transport has ended it: tells its lanes.
  void Remove(PushStreamId id, Calls* calls);

 private:
  std::map<PushStreamId, Stream> streams_;
  PushStreamId next_ = 1;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_PUSH_REGISTRY_H_
