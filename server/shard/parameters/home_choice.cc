#include "server/shard/parameters/home_choice.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kaon::shard {

std::vector<HomePlace> ChoosePlaces(absl::Span<const HomeNeeds> parameters, uint64_t room) {
  std::vector<HomePlace> places(parameters.size(), HomePlace::kDisk);
  std::vector<size_t> free;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const HomeNeeds& parameter = parameters[i];
    if (parameter.wish == HomeWish::kNone) free.push_back(i);
    if (parameter.wish != HomeWish::kMemory) continue;
    places[i] = HomePlace::kMemory;
    room -= std::min(room, parameter.state + parameter.others);
  }
  // State moves twice what it holds, and has no second version: no other bytes move more.
  for (const size_t i : free) {
    const uint64_t held = parameters[i].state;
    if (held == 0 || held > room) continue;
    places[i] = HomePlace::kDiskWithoutState;
    room -= held;
  }
  const auto ratio = [&](size_t i) {
    return static_cast<double>(parameters[i].others_moved) /
           static_cast<double>(parameters[i].others);
  };
  std::stable_sort(free.begin(), free.end(),
                   [&](size_t a, size_t b) { return ratio(a) > ratio(b); });
  for (const size_t i : free) {
    if (parameters[i].state > 0 && places[i] == HomePlace::kDisk) continue;
    const uint64_t held = parameters[i].others;
    if (held > room) continue;
    places[i] = HomePlace::kMemory;
    room -= held;
  }
  return places;
}

}  // namespace kaon::shard
