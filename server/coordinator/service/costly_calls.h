// Bounds the time of the machine's thread that one caller's costly requests take. A caller may use
// `burst` at once and a `share` of all time in the long run; beyond that it is told to wait. All
// callers together have five times as much. So certificates that repeat a large registration cannot
// stop the steps of others. Thread-safe. Owned
// by CoordinatorService and by requests that wait for the machine.
#ifndef KAON_SERVER_COORDINATOR_SERVICE_COSTLY_CALLS_H_
#define KAON_SERVER_COORDINATOR_SERVICE_COSTLY_CALLS_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "kernels/mutex.h"

namespace kaon::coordinator {

class CostlyCalls {
 public:
  struct Limits {
    absl::Duration burst = absl::Milliseconds(500);
    double share = 0.05;
    // Of one request, however long it ran: a caller waits for less than a call's usual deadline.
    absl::Duration most_charged = absl::Seconds(1);
  };

  CostlyCalls() : CostlyCalls(Limits()) {}
  explicit CostlyCalls(const Limits& limits);

  // Returns how long a request of `caller` must wait; 0 if it may run now.
  absl::Duration Wait(const std::string& caller, absl::Time now);
  // Charges the caller for a request that has run.
  void Charge(const std::string& caller, absl::Duration cost, absl::Time now);

  size_t num_callers() const;

 private:
  struct Caller {
    absl::Duration left;
    // The time at which `left` was counted.
    absl::Time at;
  };
  void Refill(Caller& caller, int times, absl::Time now) const;
  // Adds what all have been given since. Forgets callers that have their whole burst.
  Caller& RefillAll(const std::string& name, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  mutable Mutex mu_;
  std::map<std::string, Caller> callers_ ABSL_GUARDED_BY(mu_);
  // Last time that callers were forgotten.
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  Caller all_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_SERVICE_COSTLY_CALLS_H_
