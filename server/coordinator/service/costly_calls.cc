#include "server/coordinator/service/costly_calls.h"

#include <algorithm>
#include <iterator>

namespace kaon::coordinator {

namespace {

// All callers together have so many times what one has.
constexpr int kAll = 5;

}  // namespace

CostlyCalls::CostlyCalls(const Limits& limits)
    : limits_(limits), all_{kAll * limits.burst, absl::InfinitePast()} {}

void CostlyCalls::Refill(Caller& caller, int times, absl::Time now) const {
  caller.left =
      std::min(times * limits_.burst, caller.left + times * limits_.share * (now - caller.at));
  caller.at = now;
}

CostlyCalls::Caller& CostlyCalls::RefillAll(const std::string& name, absl::Time now) {
  Refill(all_, kAll, now);
  for (auto next = callers_.begin(); next != callers_.end();) {
    Refill(next->second, 1, now);
    const bool idle = next->second.left == limits_.burst && next->first != name;
    next = idle ? callers_.erase(next) : std::next(next);
  }
  return callers_.emplace(name, Caller{limits_.burst, now}).first->second;
}

absl::Duration CostlyCalls::Wait(const std::string& name, absl::Time now) {
  MutexLock lock(mu_);
  const Caller& caller = RefillAll(name, now);
  const absl::Duration lacking = std::max(-caller.left, -all_.left / kAll);
  if (lacking < absl::ZeroDuration()) return absl::ZeroDuration();
  return absl::Ceil(absl::Milliseconds(1) + lacking / limits_.share, absl::Milliseconds(1));
}

void CostlyCalls::Charge(const std::string& name, absl::Duration cost, absl::Time now) {
  MutexLock lock(mu_);
  cost = std::min(cost, limits_.most_charged);
  RefillAll(name, now).left -= cost;
  all_.left -= cost;
}

size_t CostlyCalls::num_callers() const {
  MutexLock lock(mu_);
  return callers_.size();
}

}  // namespace kaon::coordinator
