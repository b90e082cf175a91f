// Computes delays between tries. A delay doubles with each failure up to a maximum; a random factor
// keeps many clients from retrying at once. Owned by one retry loop; one thread at a time.
#ifndef KAON_CLIENT_BACKOFF_H_
#define KAON_CLIENT_BACKOFF_H_

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace kaon::client {

class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration max, uint64_t seed)
      : first_(first), max_(max), jitter_(seed) {}

  // Returns the delay after `failures` earlier failures in a row: first * 2^failures, at most max,
  // times a random factor of [0.5, 1).
  absl::Duration Delay(int failures);

 private:
  const absl::Duration first_;
  const absl::Duration max_;
  std::mt19937_64 jitter_;
};

}  // namespace kaon::client

#endif  // KAON_CLIENT_BACKOFF_H_
