// Asks a server by grpc.health.v1 whether one of its services takes calls. Uses the generic stub,
// because Debian ships no generated code for grpc.health.v1. Stateless; thread-safe.
#ifndef KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
#define KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kaon::admin_cli {

// Returns SERVING or NOT_SERVING for `service`, named as on the wire: package.Service. NOT_FOUND if
// the server does not have the service; DEADLINE_EXCEEDED at the latest after `timeout`.
absl::StatusOr<std::string> CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                                        const std::string& service, absl::Duration timeout);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
