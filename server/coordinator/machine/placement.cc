#include "server/coordinator/machine/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kaon::coordinator {

namespace {

absl::Status DoesNotFit(const PlacementItem& item, const std::vector<uint64_t>& used,
                        const PlacementLimits& limits) {
  if (item.state_bytes > limits.shard_capacity_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("parameter ", item.name, " needs ", item.state_bytes,
                     " bytes on one shard, capacity of a shard is ", limits.shard_capacity_bytes));
  }
  const uint64_t least_used = *std::min_element(used.begin(), used.end());
  return absl::ResourceExhaustedError(
      absl::StrCat("parameter ", item.name, " needs ", item.state_bytes, " bytes, the emptiest of ",
                   limits.num_shards, " shards has ", limits.shard_capacity_bytes - least_used,
                   " of ", limits.shard_capacity_bytes, " left"));
}

}  // namespace

absl::StatusOr<std::vector<int>> PlaceParameters(const std::vector<PlacementItem>& items,
                                                 const PlacementLimits& limits) {
  const uint64_t capacity = limits.shard_capacity_bytes == 0 ? std::numeric_limits<uint64_t>::max()
                                                             : limits.shard_capacity_bytes;
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return items[a].cost > items[b].cost; });

  std::vector<double> load(limits.num_shards, 0);
  std::vector<uint64_t> used(limits.num_shards, 0);
  std::vector<int> shard_of(items.size(), 0);
  for (size_t index : order) {
    const PlacementItem& item = items[index];
    int best = -1;
    for (int shard = 0; shard < limits.num_shards; ++shard) {
      if (item.state_bytes > capacity - used[shard]) continue;
      if (best < 0 || load[shard] < load[best]) best = shard;
    }
    if (best < 0) return DoesNotFit(item, used, limits);
    load[best] += item.cost;
    used[best] += item.state_bytes;
    shard_of[index] = best;
  }
  return shard_of;
}

}  // namespace kaon::coordinator
