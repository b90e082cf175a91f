// A monotonic clock as absl::Time. Its zero has no meaning: use it only for differences and timers
// of one process. Any thread.
#ifndef KAON_KERNELS_STEADY_CLOCK_H_
#define KAON_KERNELS_STEADY_CLOCK_H_

#include <chrono>

#include "absl/time/time.h"

namespace kaon {

inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace kaon

#endif  // KAON_KERNELS_STEADY_CLOCK_H_
