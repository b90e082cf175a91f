// Deadlines of calls by the clock that never jumps: whoever sets the machine's time while a call is
// under way neither ends nor prolongs it. A pure function; any thread.
#ifndef KAON_PROTO_GRPC_DEADLINE_H_
#define KAON_PROTO_GRPC_DEADLINE_H_

#include <grpc/support/time.h>
#include <grpcpp/support/time.h>

#include "absl/time/time.h"

namespace kaon::proto {

// What to give to gRPC so that something ends, or rings, `after` from now.
inline gpr_timespec DeadlineAfter(absl::Duration after) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(after), GPR_TIMESPAN));
}

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_DEADLINE_H_
