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

// Told of each call that is refused before its handler: the URI of the caller's certificate, or
// that it has none of ours, and why. Any of gRPC's threads; must not block.
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

// Limits of protocol.md section 4 and reliability.md section 0: identity compression only
// (UNIMPLEMENTED otherwise, before anything is inflated), message and metadata sizes
// (RESOURCE_EXHAUSTED), handshake time, read-ahead, streams per connection; a port in use is an
// error rather than shared.
void HardenServer(grpc::ServerBuilder& builder);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_SERVER_CREDENTIALS_H_
