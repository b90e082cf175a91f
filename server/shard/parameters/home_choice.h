// Decides which parameters live on a disk: those that ask for it, and those that find no room in
// memory. Memory goes first to what would move most bytes per step for each byte that it holds: to
// optimizer state, and then to weights. A pure function.
#ifndef KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_
#define KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kaon::shard {

enum class HomeWish : uint8_t { kNone, kMemory, kDisk };
// A parameter on the disk may have its optimizer state in memory.
enum class HomePlace : uint8_t { kMemory, kDiskWithoutState, kDisk };

// One parameter, in bytes.
struct HomeNeeds {
  // Optimizer state.
  uint64_t state = 0;
  // All else that it holds in memory: both versions of the weights, and the sum of gradients.
  uint64_t others = 0;
  // They are read and written in each step, if it is on a disk; 0 for a frozen parameter.
  uint64_t others_moved = 0;
  HomeWish wish = HomeWish::kNone;
};

// Returns the place of each parameter, if memory has room for `room` bytes. Wishes are met, even if
// memory is too small. Equal ratios are kept in memory in their order.
std::vector<HomePlace> ChoosePlaces(absl::Span<const HomeNeeds> parameters, uint64_t room);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_
