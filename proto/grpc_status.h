// absl::Status <-> grpc::Status: the same canonical codes on both sides. Pure functions; any
// thread.
#ifndef KAON_PROTO_GRPC_STATUS_H_
#define KAON_PROTO_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace kaon::proto {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace kaon::proto

#endif  // KAON_PROTO_GRPC_STATUS_H_
