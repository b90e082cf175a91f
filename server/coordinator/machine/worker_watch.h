// Which workers a step has waited for in vain (protocol.md 2.2 "Worker lost"): adds up how long
// nothing was heard of each that is waited for. Pure; owned by StepMachine, called by its thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"

namespace kaon::coordinator {

class WorkerWatch {
 public:
  // Of a longer pause between two ticks only `longest_tick` counts: while this process did not run,
  // it could not hear anybody either.
  explicit WorkerWatch(absl::Duration longest_tick) : longest_tick_(longest_tick) {}

  // A call of the rank has arrived.
  void Heard(uint32_t rank) { silences_.erase(rank); }

  // `absent` are the ranks that are waited for and have no stream open, now and since the tick
  // before; returns those of which nothing was heard for `patience`, ascending. Whoever is not
  // absent begins anew.
  std::vector<uint32_t> Tick(absl::Time now, const std::vector<uint32_t>& absent,
                             absl::Duration patience);

 private:
  const absl::Duration longest_tick_;
  absl::Time last_tick_ = absl::InfiniteFuture();
  std::map<uint32_t, absl::Duration> silences_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_WORKER_WATCH_H_
