#include "server/coordinator/machine/worker_watch.h"

#include <algorithm>
#include <utility>

namespace kaon::coordinator {

std::vector<uint32_t> WorkerWatch::Tick(absl::Time now, const std::vector<uint32_t>& absent,
                                        absl::Duration patience) {
  passed_ = std::clamp(now - last_tick_, absl::ZeroDuration(), longest_tick_);
  last_tick_ = now;
  std::map<uint32_t, absl::Duration> before = std::exchange(silences_, {});
  std::vector<uint32_t> lost;
  for (const uint32_t rank : absent) {
    // The first tick that finds the rank absent only starts its silence.
    const auto known = before.find(rank);
    const absl::Duration silence =
        known == before.end() ? absl::ZeroDuration() : known->second + passed_;
    silences_[rank] = silence;
    if (silence >= patience) lost.push_back(rank);
  }
  return lost;
}

}  // namespace kaon::coordinator
