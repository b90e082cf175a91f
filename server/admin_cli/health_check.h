// Asks a server by grpc.health.v1 whether one of its services takes calls. Uses the generic stub,
// because Debian ships no generated code for grpc.health.v1. A free function; any thread.
#ifndef KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
#define KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kaon::admin_cli {

// Returns SERVING or NOT_SERVING. `service` is the name on the wire: package.Service. NOT_FOUND if
// the server has no such service; DEADLINE_EXCEEDED after `timeout`.
absl::StatusOr<std::string> CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                                        const std::string& service, absl::Duration timeout);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_HEALTH_CHECK_H_
