// The steady clock of one simulated machine, with its own origin and a small drift (T9). Times in a
// message or a file mean nothing on another machine, and timers of one length end at different
// moments. The clock is drawn from the seed separately, so that the cluster has the same faults
// without it. Owned by a node; one thread.
#ifndef KAON_TESTS_SIMULATION_SKEWED_CLOCK_H_
#define KAON_TESTS_SIMULATION_SKEWED_CLOCK_H_

#include <cstdint>
#include <random>

#include "absl/time/time.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/event_queue.h"

namespace kaon::simulation {

class SkewedClock {
 public:
  // `machine` is a different number for each machine. Without skewed_clocks the clock equals the
  // queue's.
  SkewedClock(const ClusterOptions& options, const EventQueue& queue, uint64_t machine)
      : queue_(queue) {
    if (!options.skewed_clocks) return;
    std::mt19937_64 random(options.seed * 1'000'003 + machine);
    origin_ += absl::Seconds(static_cast<int64_t>(random() % (kMostApart / absl::Seconds(1))));
    rate_ += (static_cast<double>(random() >> 11) * 0x1p-52 - 1) * kMostDrift;
  }

  absl::Time now() const { return origin_ + (queue_.now() - absl::UnixEpoch()) * rate_; }
  // Returns the queue's time at which this clock reaches `time`, rounded up.
  absl::Time InQueue(absl::Time time) const {
    if (rate_ == 1) return absl::UnixEpoch() + (time - origin_);
    const absl::Time there = absl::UnixEpoch() + (time - origin_) / rate_;
    // The quotient above is truncated to a quarter of a nanosecond.
    return there + absl::Nanoseconds(1);
  }

 private:
  static constexpr absl::Duration kMostApart = absl::Hours(24 * 365);
  // Far above the drift of a quartz and of a slewed clock.
  static constexpr double kMostDrift = 0.1;

  const EventQueue& queue_;
  absl::Time origin_ = absl::UnixEpoch();
  double rate_ = 1;
};

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_SKEWED_CLOCK_H_
