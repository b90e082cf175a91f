// Requests of admins that have no answer yet. Each part is a state machine of its own. Pure; owned
// by StepMachine, one thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_ADMIN_REQUESTS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_ADMIN_REQUESTS_H_

#include "server/coordinator/machine/requests/drains.h"
#include "server/coordinator/machine/requests/group_changes.h"
#include "server/coordinator/machine/requests/job_deletions.h"
#include "server/coordinator/machine/requests/restores.h"

namespace kaon::coordinator {

struct AdminRequests {
  GroupChanges changes;
  Restores restores;
  JobDeletions deletions;
  Drains drains;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_REQUESTS_ADMIN_REQUESTS_H_
