// Conversion absl::Status <-> grpc::Status: both have the same canonical codes. The conversion also
// tells which end made a status. Pure functions; any thread.
#ifndef KAON_PROTO_GRPC_STATUS_H_
#define KAON_PROTO_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace kaon::proto {

// Marks the status as the server's own. The message, marked or not, is shortened by OneLine.
grpc::Status ToGrpc(const absl::Status& status);
// Returns ConnectionLost for an UNAVAILABLE, UNKNOWN or INTERNAL that no Kaon server made. gRPC
// ends a call with one of them when its connection breaks. CANCELLED stays: the caller knows
// whether it cancelled.
absl::Status FromGrpc(const grpc::Status& status);

// Returns UNAVAILABLE "connection lost: `why`", for a call that no server answered.
absl::Status ConnectionLost(absl::string_view why);
bool IsConnectionLost(const absl::Status& status);

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_STATUS_H_
