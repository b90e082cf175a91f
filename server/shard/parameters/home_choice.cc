#include "server/shard/parameters/home_choice.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kaon::shard {

std::vector<bool> ChooseDisk(absl::Span<const HomeNeeds> parameters, uint64_t room) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto ratio = [&](size_t i) {
    return static_cast<double>(parameters[i].moved) / static_cast<double>(parameters[i].held);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ratio(a) > ratio(b); });
  for (const HomeNeeds& parameter : parameters) {
    if (parameter.wish == HomeWish::kMemory) room -= std::min(room, parameter.held);
  }
  std::vector<bool> on_disk(parameters.size());
  for (const size_t i : order) {
    const HomeNeeds& parameter = parameters[i];
    if (parameter.wish != HomeWish::kNone) {
      on_disk[i] = parameter.wish == HomeWish::kDisk;
      continue;
    }
    on_disk[i] = parameter.held > room;
    if (!on_disk[i]) room -= parameter.held;
  }
  return on_disk;
}

}  // namespace kaon::shard
