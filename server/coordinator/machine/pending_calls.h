// Calls that StepMachine has not answered yet, as it remembers them. Plain values, owned by it.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_PENDING_CALLS_H_
#define KAON_SERVER_COORDINATOR_MACHINE_PENDING_CALLS_H_

#include <cstdint>

#include "kaon/v1/admin.pb.h"
#include "kaon/v1/agreement.pb.h"
#include "server/coordinator/machine/actions.h"

namespace kaon::coordinator {

// An open AwaitStep stream.
struct Waiter {
  uint32_t rank = 0;
  v1::Attempt attempt;
  uint64_t step = 0;
};

// A change of groups.
struct PendingChange {
  CallId call = 0;
  v1::SetGroupRequest request;
};

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_PENDING_CALLS_H_
