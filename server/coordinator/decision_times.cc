#include "server/coordinator/decision_times.h"

namespace kaon::coordinator {

void DecisionTimes::Note(uint64_t timeline, uint64_t position, int64_t unix_millis) {
  MutexLock lock(mu_);
  Decision& decision = by_position_[position];
  if (decision.timeline == timeline) return;
  decision = {timeline, unix_millis};
  if (by_position_.size() > kMaxEntries) by_position_.erase(by_position_.begin());
}

int64_t DecisionTimes::Of(uint64_t timeline, uint64_t position) const {
  MutexLock lock(mu_);
  const auto found = by_position_.find(position);
  const bool is_known = found != by_position_.end() && found->second.timeline == timeline;
  return is_known ? found->second.unix_millis : 0;
}

}  // namespace kaon::coordinator
