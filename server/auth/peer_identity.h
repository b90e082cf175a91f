// Who is at the other end of a call, and whether it may act for a worker rank. Pure functions over
// a call's context; any thread, for as long as the context lives.
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

// The identity in a certificate that the handshake has verified. UNAUTHENTICATED when it does not
// have exactly one URI name or that name is not an identity of ours.
absl::StatusOr<proto::Identity> CertificateIdentity(const grpc::AuthContext& context);

// For handlers: on servers with certificates the processor of CreateServerCredentials has already
// refused a call whose certificate names nobody. On plaintext servers, which are loopback only,
// whoever can connect is the machine's own user: role admin with an empty domain, which
// AuthorizeWorker lets act for every rank.
proto::Identity PeerIdentity(const grpc::ServerContextBase& context);

// For logs: the URI of the certificate, or that there was none.
std::string PeerName(const proto::Identity& identity);

// PERMISSION_DENIED naming both jobs or both ranks, or the role if it is not worker.
absl::Status AuthorizeWorker(const proto::Identity& identity, absl::string_view job, uint32_t rank);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_PEER_IDENTITY_H_
