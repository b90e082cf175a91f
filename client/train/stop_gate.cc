#include "client/train/stop_gate.h"

#include <algorithm>
#include <utility>

namespace kaon::train {

bool StopGate::MayBegin(uint64_t step) {
  MutexLock lock(mu_);
  if (!failure_.ok()) return false;
  if (signalled_.load() && step > newest_begun_) return false;
  newest_begun_ = std::max(newest_begun_, step);
  return true;
}

void StopGate::Fail(absl::Status status) {
  MutexLock lock(mu_);
  if (failure_.ok()) failure_ = std::move(status);
}

absl::Status StopGate::failure() const {
  MutexLock lock(mu_);
  return failure_;
}

}  // namespace kaon::train
