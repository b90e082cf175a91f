// absl::Status <-> grpc::Status: the same canonical codes on both sides, and which end made a
// status. Pure functions; any thread.
#ifndef KAON_PROTO_GRPC_STATUS_H_
#define KAON_PROTO_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::proto {

// Marks the status as the server's own. Either way the message becomes OneLine of it.
grpc::Status ToGrpc(const absl::Status& status);
// Returns ConnectionLost for an UNAVAILABLE, UNKNOWN or INTERNAL that no server of ours made: gRPC
// ends a call with one of them when its connection breaks. gRPC's CANCELLED stays: the caller knows
// whether it cancelled.
absl::Status FromGrpc(const grpc::Status& status);

// UNAVAILABLE "connection lost: `why`": a call that no server answered.
absl::Status ConnectionLost(absl::string_view why);
bool IsConnectionLost(const absl::Status& status);

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_STATUS_H_
