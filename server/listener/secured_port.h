// Makes the port of a server. A Listener, mutual TLS, the rights of roles, denied certificates and
// limits stand there between a caller and a handler. Any thread.
#ifndef KAON_SERVER_LISTENER_SECURED_PORT_H_
#define KAON_SERVER_LISTENER_SECURED_PORT_H_

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kaon/v1/config.pb.h"
#include "server/listener/listener.h"
#include "server/monitor/event_counts.h"

namespace kaon::listener {

// Binds host:port and makes the server of `builder` get its connections there. Counts calls and
// refusals in `counts`, which must outlive the listener. Errors of auth::CreateServerCredentials,
// auth::PeerPolicy::Create and Listener::Bind.
absl::StatusOr<std::unique_ptr<Listener>> AddSecuredPort(grpc::ServerBuilder& builder,
                                                         const v1::TlsConfig& tls,
                                                         const std::string& listen,
                                                         monitor::EventCounts& counts);

}  // namespace kaon::listener

#endif  // KAON_SERVER_LISTENER_SECURED_PORT_H_
