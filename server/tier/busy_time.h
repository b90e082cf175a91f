// Time during which at least one operation is in progress. A value; the owner locks.
#ifndef KAON_SERVER_TIER_BUSY_TIME_H_
#define KAON_SERVER_TIER_BUSY_TIME_H_

#include "absl/time/time.h"
#include "kernels/steady_clock.h"

namespace kaon::tier {

class BusyTime {
 public:
  void Start() {
    if (in_progress_++ == 0) since_ = SteadyNow();
  }
  void Stop() {
    if (--in_progress_ == 0) total_ += SteadyNow() - since_;
  }
  int in_progress() const { return in_progress_; }
  // Does not count operations in progress.
  absl::Duration total() const { return total_; }

 private:
  int in_progress_ = 0;
  absl::Time since_;
  absl::Duration total_;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_BUSY_TIME_H_
