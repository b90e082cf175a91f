#include "server/coordinator/service/costly_calls.h"

#include <algorithm>
#include <iterator>

namespace kaon::coordinator {

namespace {

// All callers together have so many times what one has.
constexpr int kAll = 5;
constexpr absl::Duration kBetweenSweeps = absl::Seconds(1);

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
  // Rarely: thousands of workers register at once.
  if (now - swept_ >= kBetweenSweeps) {
    swept_ = now;
    for (auto next = callers_.begin(); next != callers_.end();) {
      Refill(next->second, 1, now);
      next = next->second.left == limits_.burst ? callers_.erase(next) : std::next(next);
    }
  }
  Caller& caller = callers_.emplace(name, Caller{limits_.burst, now}).first->second;
  Refill(caller, 1, now);
  return caller;
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
