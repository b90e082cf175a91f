// Checks that every Kaon port makes before a handler runs. The caller needs a certificate of the
// cluster's CA and a role that may call the method; messages must be within the limits. Each
// server's composition root uses this once, before the server starts.
#ifndef KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_
#define KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/config.pb.h"
#include "proto/identity.h"

namespace kaon::auth {

// Enough for a chunk of 1 MiB with its header, or for registering about ten thousand parameters.
inline constexpr int kShardMessageBytes = (1 << 20) + (64 << 10);
// Enough for registering 100,000 parameters.
inline constexpr int kCoordinatorMessageBytes = 64 << 20;

// Called for each call that is refused before its handler. `peer` is the URI of the caller's
// certificate, or says that it has no valid one. gRPC calls this on any thread; it must not block.
using OnRefused = std::function<void(const std::string& peer, const absl::Status& refusal)>;

// Called for each call that has a certificate of the CA, also if it is refused later. gRPC calls
// this on any thread; it must not block.
using OnCall = std::function<void()>;

// Returns mutual TLS with the table of authorization_matrix.h in front of every method. A caller
// without a certificate of the CA fails in the handshake. A caller without an identity gets
// UNAUTHENTICATED, one with the wrong role PERMISSION_DENIED. Files are read again within seconds
// of a change.
// Without certificates: plaintext, every method open, on loopback only.
//   INVALID_ARGUMENT     `listen` is not host:port, or only some of the three files are named
//   FAILED_PRECONDITION  no certificates and `listen` is not a loopback address
//   NOT_FOUND            a file cannot be read (names it)
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CreateServerCredentials(
    const v1::TlsConfig& tls, absl::string_view listen, OnRefused on_refused = nullptr,
    OnCall on_call = nullptr);

// Checks the files with which a server of `role` starts. Logs a warning if its certificate expires
// soon. Returns the errors of client::CheckCertificates.
absl::Status CheckServerFiles(const v1::TlsConfig& tls, proto::Role role);

// Sets the limits of protocol.md section 4 and reliability.md section 0. Refuses compressed
// messages with UNIMPLEMENTED before anything is inflated. Refuses too large messages and metadata
// with RESOURCE_EXHAUSTED. Limits handshake time, read-ahead and streams per connection. A port in
// use is an error; it is never shared.
void HardenServer(grpc::ServerBuilder& builder, int max_message_bytes = kShardMessageBytes);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_
