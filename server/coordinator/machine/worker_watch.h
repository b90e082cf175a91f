// Finds the workers that a step has waited for too long (protocol.md 2.2 "Worker lost"): adds up
// the silence of each absent worker. Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"

namespace kaon::coordinator {

class WorkerWatch {
 public:
  // A longer pause between two ticks counts as `longest_tick`: while this process did not run, it
  // could not hear a worker either.
  explicit WorkerWatch(absl::Duration longest_tick) : longest_tick_(longest_tick) {}

  // Notes that a call of the rank arrived.
  void Heard(uint32_t rank) {
    silences_.erase(rank);
    ++calls_[rank];
  }
  // Returns how often Heard was called for the rank.
  uint64_t calls(uint32_t rank) const {
    const auto found = calls_.find(rank);
    return found == calls_.end() ? 0 : found->second;
  }

  // Returns how long the newest tick lasted; at most `longest_tick`.
  absl::Duration passed() const { return passed_; }

  // Returns the ranks of which nothing was heard for `patience`, ascending. `absent` are the ranks
  // that the step waits for and that have no stream open. The silence of a rank that is not absent
  // starts again at 0.
  std::vector<uint32_t> Tick(absl::Time now, const std::vector<uint32_t>& absent,
                             absl::Duration patience);

 private:
  const absl::Duration longest_tick_;
  absl::Time last_tick_ = absl::InfiniteFuture();
  absl::Duration passed_;
  std::map<uint32_t, absl::Duration> silences_;
  std::map<uint32_t, uint64_t> calls_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_
