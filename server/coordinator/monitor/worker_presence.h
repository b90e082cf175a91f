// Counts the workers that live. A worker keeps no connection while it computes, so that the ones
// whose call is open or was heard lately count. One thread.
#ifndef KAON_SERVER_COORDINATOR_MONITOR_WORKER_PRESENCE_H_
#define KAON_SERVER_COORDINATOR_MONITOR_WORKER_PRESENCE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "server/coordinator/machine/membership.h"

namespace kaon::coordinator {

class WorkerPresence {
 public:
  // A worker counts for so long after it was heard.
  static constexpr absl::Duration kWindow = absl::Minutes(1);

  // Returns how many of `workers` have a call open at `now` or were heard within kWindow before. A
  // call counts from the first Note that shows it. `now` does not go back.
  int Note(const std::vector<WorkerSnapshot>& workers, absl::Time now);

 private:
  struct Heard {
    uint64_t calls = 0;
    absl::Time at = absl::InfinitePast();
  };
  std::map<uint32_t, Heard> heard_;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MONITOR_WORKER_PRESENCE_H_
