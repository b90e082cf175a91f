// Identifies the caller of a call, and decides whether it may act for a worker rank. Pure functions
// over a call's context; any thread, while the context lives.
#ifndef KAON_SERVER_AUTH_PEER_IDENTITY_H_
#define KAON_SERVER_AUTH_PEER_IDENTITY_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/identity.h"

namespace kaon::auth {

// Returns the identity in a certificate that the handshake has verified. UNAUTHENTICATED unless the
// certificate has exactly one URI name and that name is an identity of Kaon.
absl::StatusOr<proto::Identity> CertificateIdentity(const grpc::AuthContext& context);

// Returns the identity of the caller, for handlers.
//
// - With certificates: the processor of CreateServerCredentials has already rejected a certificate
//   without an identity.
// - Plaintext: the server is on loopback only, so every caller is a user of this machine. Returns
//   role admin with an empty domain, which AuthorizeWorker accepts for every rank.
proto::Identity PeerIdentity(const grpc::ServerContextBase& context);

// Returns the URI of the certificate, or a text that there was none, for logs.
std::string PeerName(const proto::Identity& identity);

// Returns a text for each identity and address, which is the unit of fairness. It has no port, and
// only the /64 network of an IPv6 address. Many workers may share a certificate, and one may open
// many connections.
std::string CallerName(const grpc::ServerContextBase& context);

// Returns PERMISSION_DENIED naming both jobs, both ranks, or the role if it is not worker.
absl::Status AuthorizeWorker(const proto::Identity& identity, absl::string_view job, uint32_t rank);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_PEER_IDENTITY_H_
