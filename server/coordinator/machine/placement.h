// Places parameters on shards: longest processing time first over modelled cost (protocol.md
// section 5). Pure and deterministic; any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_PLACEMENT_H_
#define KAON_SERVER_COORDINATOR_MACHINE_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kaon::coordinator {

// One parameter, which is never split.
struct PlacementItem {
  // Name for messages.
  std::string name;
  // Modelled time per step: the update, the state it walks over and its bytes on the wire, in units
  // of one element's element-wise update. Finite, >= 0.
  double cost = 0;
  // Bytes of weight, optimizer state and accumulator.
  uint64_t state_bytes = 0;
};

struct PlacementLimits {
  int num_shards = 1;
  // Bytes one shard may hold; 0 = unbounded.
  uint64_t shard_capacity_bytes = 0;
};

// Returns the shard of each item, by index. Items in order of falling cost (ties by index) go to
// the shard of least cost so far that has room (ties by shard index). RESOURCE_EXHAUSTED with the
// arithmetic if an item fits on no shard, or on none any more.
absl::StatusOr<std::vector<int>> PlaceParameters(const std::vector<PlacementItem>& items,
                                                 const PlacementLimits& limits);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_PLACEMENT_H_
