// Decides which parameters live on a disk: those that ask for it, and those that find no room in
// memory. Memory goes first to the parameters that would move most bytes per step for each byte
// that they hold. A pure function.
#ifndef KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_
#define KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace kaon::shard {

enum class HomeWish : uint8_t { kNone, kMemory, kDisk };

// One parameter.
struct HomeNeeds {
  // Both versions of the weights, the optimizer state, and the sum of gradients.
  uint64_t held = 0;
  // Read and written in each step, if it is on a disk; 0 for a frozen parameter.
  uint64_t moved = 0;
  HomeWish wish = HomeWish::kNone;
};

// Returns for each parameter whether it is on the disk, if memory has room for `room` bytes. Wishes
// are met, even if memory is too small. Parameters with the same ratio are kept in memory in their
// order.
std::vector<bool> ChooseDisk(absl::Span<const HomeNeeds> parameters, uint64_t room);

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_PARAMETERS_HOME_CHOICE_H_
