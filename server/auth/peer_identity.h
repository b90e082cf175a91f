// Finds the identity of a caller, and checks whether it may act for a worker rank. Pure functions
// over a call's context; thread-safe during the lifetime of the context.
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

// Returns the identity in a certificate that the handshake has verified. UNAUTHENTICATED if it does
// not have exactly one URI name, or if that name is no Kaon identity.
absl::StatusOr<proto::Identity> CertificateIdentity(const grpc::AuthContext& context);

// Returns the identity of a handler's caller. On servers with certificates, CreateServerCredentials
// has already refused callers without an identity.
// Plaintext servers listen on loopback only, so every caller is a user of this machine. It gets
// role admin with an empty domain, and AuthorizeWorker lets it act for every rank.
proto::Identity PeerIdentity(const grpc::ServerContextBase& context);

// Returns the URI of the certificate for logs, or says that there was none.
std::string PeerName(const proto::Identity& identity);

// Returns PERMISSION_DENIED naming both jobs, both ranks, or the role if it is not worker.
absl::Status AuthorizeWorker(const proto::Identity& identity, absl::string_view job, uint32_t rank);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_PEER_IDENTITY_H_
