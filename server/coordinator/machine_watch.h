// Looks at a coordinator's state machine after each event and tells of what has changed: whether
// its job is stopped, which the health service answers. Owned by CoordinatorServer; called by the
// loop's thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
#define KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_

#include "server/coordinator/step_machine.h"
#include "server/monitor/service_health.h"

namespace kaon::coordinator {

class MachineWatch {
 public:
  // `health`, of the service that workers call, outlives the watch.
  explicit MachineWatch(monitor::ServiceHealth& health) : health_(health) {}

  void Look(const StepMachine& machine);

 private:
  monitor::ServiceHealth& health_;
  // As health_ was told.
  bool stopped_ = false;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_WATCH_H_
