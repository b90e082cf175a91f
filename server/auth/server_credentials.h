// The checks of every Kaon port before a handler runs. The caller needs a certificate of the
// cluster's CA and a role that the method allows; messages must be within the limits. The
// composition root of a server uses it once, before the server starts.
#ifndef KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_
#define KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/config.pb.h"
#include "proto/identity.h"
#include "server/auth/call_limits.h"
#include "server/auth/peer_policy.h"

namespace kaon::auth {

// Receives each call that is rejected before its handler. `peer` is the URI of the caller's
// certificate, or says that it has no identity of Kaon. Runs on any thread of gRPC; must not block.
using OnRefused = std::function<void(const std::string& peer, const absl::Status& refusal)>;

// Runs for each call with a certificate of the CA, even if the call is rejected later. Runs on any
// thread of gRPC; must not block.
using OnCall = std::function<void()>;

// Returns the number that CallLimits has given to the connection of a call. Call it once the call
// has passed the credentials. 0 if there is none, as without TLS.
uint64_t ConnectionOf(const grpc::AuthContext& context);

// Creates credentials for mutual TLS that check every method against the table of
// authorization_matrix.h. A caller without a certificate of the CA fails in the handshake. A caller
// without an identity gets UNAUTHENTICATED, as one whom `policy` refuses, and one with the wrong
// role gets PERMISSION_DENIED. Calls beyond `limits` get UNAVAILABLE; null allows all. Changed
// files are reloaded within seconds. Without certificates the port is plaintext on loopback only,
// and every method is open.
//   INVALID_ARGUMENT     `listen` is not host:port, or only some of the three files are named
//   FAILED_PRECONDITION  no certificates and `listen` is not a loopback address
//   NOT_FOUND            a file cannot be read (names it)
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CreateServerCredentials(
    const v1::TlsConfig& tls, absl::string_view listen, std::shared_ptr<PeerPolicy> policy,
    OnRefused on_refused = nullptr, OnCall on_call = nullptr,
    std::shared_ptr<CallLimits> limits = nullptr);

// Checks the address and the files that a server of `role` starts with. Logs a warning if its
// certificate expires soon. Errors: CreateServerCredentials and client::CheckCertificates.
absl::Status CheckServerTls(const v1::TlsConfig& tls, absl::string_view listen, proto::Role role);

// Sets the limits of protocol.md section 4 and reliability.md section 0.
//
// - Compression: identity only. Anything else gets UNIMPLEMENTED before it is inflated.
// - Sizes of messages and metadata: RESOURCE_EXHAUSTED above the limit.
// - Handshake time, read-ahead, and streams per connection.
// - A port in use is an error; gRPC must not share it.
void HardenServer(grpc::ServerBuilder& builder);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_
