#include "server/coordinator/machine_watch.h"

#include <string>

namespace kaon::coordinator {

void MachineWatch::Look(const StepMachine& machine) {
  // One that stands by answers with the holder's address, whatever it held once.
  const bool stopped = machine.IsHolder() && !machine.stopped().ok();
  if (stopped == stopped_) return;
  stopped_ = stopped;
  health_.SetReason("job", stopped ? machine.stopped().ToString() : std::string());
}

}  // namespace kaon::coordinator
