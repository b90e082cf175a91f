// Deadlines of calls on a monotonic clock: a change of the machine's time during a call neither
// ends nor prolongs it. A pure function; any thread.
#ifndef KAON_PROTO_GRPC_DEADLINE_H_
#define KAON_PROTO_GRPC_DEADLINE_H_

#include <grpc/support/time.h>
#include <grpcpp/support/time.h>

#include "absl/time/time.h"

namespace kaon::proto {

// Returns the gRPC time at which something ends, or an alarm rings, `after` from now.
inline gpr_timespec DeadlineAfter(absl::Duration after) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(after), GPR_TIMESPAN));
}

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_DEADLINE_H_
