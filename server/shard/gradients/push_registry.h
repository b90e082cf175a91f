// The open push streams of a shard and the lanes that joined them. It knows the rank of each stream
// and which lanes end with a push. It holds no gradients. Owned by GradientAccumulator, under its
// lock.
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
  // A push over several connections has one stream that opens and finishes it, plus lanes.
  static constexpr uint32_t kMostLanes = 3;

  struct Stream {
    uint32_t rank = 0;
    uint64_t generation = 0;
    PushCallbacks callbacks;
    // Set for a lane: the stream that it joined.
    std::optional<PushStreamId> joined;
    // Number of lanes that joined this stream since it opened.
    uint32_t num_lanes = 0;
  };
  // Callbacks to invoke once no lock is held.
  using Calls = std::vector<std::function<void()>>;

  PushStreamId Add(uint32_t rank, uint64_t generation, PushCallbacks callbacks);
  // Adds a lane to `push`. Returns ABORTED if the push is over, INVALID_ARGUMENT if it is a lane or
  // belongs to another rank, RESOURCE_EXHAUSTED if it has kMostLanes.
  absl::StatusOr<PushStreamId> Join(PushStreamId push, uint32_t rank, PushCallbacks callbacks);

  // Returns ABORTED if the stream is over. The pointer is valid until a stream is added or ended.
  absl::StatusOr<const Stream*> Find(PushStreamId id) const;

  // Ends the stream and its lanes, and adds their on_ended to `calls`. Does nothing if it is over.
  void End(PushStreamId id, const absl::Status& status, Calls* calls);
  void EndAll(const absl::Status& status, Calls* calls);
  // Removes a stream that its transport has ended, and ends its lanes.
  void Remove(PushStreamId id, Calls* calls);

 private:
  std::map<PushStreamId, Stream> streams_;
  PushStreamId next_ = 1;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_GRADIENTS_PUSH_REGISTRY_H_
