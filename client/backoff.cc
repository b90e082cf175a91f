#include "client/backoff.h"

#include <algorithm>

namespace kaon::client {

absl::Duration Backoff::Delay(int failures) {
  absl::Duration delay = first_;
  for (int i = 0; i < failures && delay < max_; ++i) delay *= 2;
  delay = std::min(delay, max_);
  // 53 random bits: unlike std::uniform_real_distribution, this gives the same fraction on every
  // platform.
  const double fraction = static_cast<double>(jitter_() >> 11) / 9007199254740992.0;
  return delay * (0.5 + 0.5 * fraction);
}

}  // namespace kaon::client
