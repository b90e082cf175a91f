// Asks a server by grpc.health.v1 whether one of its services takes calls. Through the generic
// stub: Debian ships no generated code for grpc.health.v1. Owned by nobody; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
#define KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kaon::admin_cli {

// SERVING or NOT_SERVING, of `service` as on the wire: package.Service. NOT_FOUND for a service
// that the server does not have; DEADLINE_EXCEEDED at the latest after `timeout`.
absl::StatusOr<std::string> CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                                        const std::string& service, absl::Duration timeout);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
