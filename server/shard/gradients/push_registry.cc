#include "server/shard/gradients/push_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kaon::shard {

PushStreamId PushRegistry::Add(uint32_t rank, uint64_t generation, PushCallbacks callbacks) {
  const PushStreamId id = next_++;
  streams_[id] = {rank, generation, std::move(callbacks), std::nullopt};
  return id;
}

absl::StatusOr<PushStreamId> PushRegistry::Join(PushStreamId push, uint32_t rank,
                                                PushCallbacks callbacks) {
  const auto joined = streams_.find(push);
  if (joined == streams_.end()) {
    return absl::AbortedError(absl::StrCat("lane_of is ", push, ", a push that is over"));
  }
  Stream& stream = joined->second;
  if (stream.rank != rank || stream.joined.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("lane_of is ", push, ", which is not a push of rank ", rank));
  }
  if (stream.num_lanes >= kMostLanes) {
    return absl::ResourceExhaustedError(absl::StrCat("push ", push, " has ", stream.num_lanes,
                                                     " lanes, expecting at most ", kMostLanes));
  }
  ++stream.num_lanes;
  const PushStreamId id = next_++;
  streams_[id] = {rank, stream.generation, std::move(callbacks), push};
  return id;
}

absl::StatusOr<const PushRegistry::Stream*> PushRegistry::Find(PushStreamId id) const {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return absl::AbortedError("the push stream is over");
  return &found->second;
}

void PushRegistry::End(PushStreamId id, const absl::Status& status, Calls* calls) {
  const auto end = [&](const Stream& stream) {
    calls->push_back([ended = stream.callbacks.on_ended, status] { ended(status); });
  };
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const bool has_lanes = found->second.num_lanes > 0;
  end(found->second);
  streams_.erase(found);
  if (!has_lanes) return;
  for (auto lane = streams_.begin(); lane != streams_.end();) {
    if (lane->second.joined != id) {
      ++lane;
      continue;
    }
    end(lane->second);
    lane = streams_.erase(lane);
  }
}

void PushRegistry::EndAll(const absl::Status& status, Calls* calls) {
  while (!streams_.empty()) End(streams_.begin()->first, status, calls);
}

void PushRegistry::Remove(PushStreamId id, Calls* calls) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  // The transport ended the stream itself and needs no callback.
  found->second.callbacks.on_ended = [](const absl::Status&) {};
  End(id, absl::AbortedError("the push of this lane is over"), calls);
}

}  // namespace kaon::shard
