#include "server/auth/peer_identity.h"

#include <grpc/grpc_security_constants.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/text.h"

namespace kaon::auth {

namespace {

bool IsTls(const grpc::AuthContext& context) {
  for (const grpc::string_ref& type :
       context.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME)) {
    if (type == GRPC_SSL_TRANSPORT_SECURITY_TYPE || type == GRPC_TLS_TRANSPORT_SECURITY_TYPE) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<proto::Identity> CertificateIdentity(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  if (uris.size() != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("client certificate has ", uris.size(), " URI names, expecting 1"));
  }
  absl::StatusOr<proto::Identity> identity =
      proto::ParseIdentity(absl::string_view(uris[0].data(), uris[0].size()));
  if (!identity.ok()) return absl::UnauthenticatedError(identity.status().message());
  return identity;
}

proto::Identity PeerIdentity(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && IsTls(*peer)) {
    absl::StatusOr<proto::Identity> identity = CertificateIdentity(*peer);
    if (identity.ok()) return *std::move(identity);
    // Unreachable behind the processor. If it ever runs, it grants the least: a reader of a job
    // that does not exist.
    return {.domain = "unauthenticated", .role = proto::Role::kReader, .job = "", .rank = {}};
  }
  return {.domain = "", .role = proto::Role::kAdmin, .job = {}, .rank = {}};
}

std::string PeerName(const proto::Identity& identity) {
  return identity.domain.empty() ? "a caller on this machine" : identity.ToUri();
}

absl::Status AuthorizeWorker(const proto::Identity& identity, absl::string_view job,
                             uint32_t rank) {
  if (identity.domain.empty()) return absl::OkStatus();
  if (identity.role != proto::Role::kWorker) {
    return absl::PermissionDeniedError(
        absl::StrCat("role ", proto::NameOf(identity.role), " may not act as worker ", rank));
  }
  if (identity.job.has_value() && *identity.job != job) {
    return absl::PermissionDeniedError(
        absl::StrCat("certificate is for job '", proto::Excerpt(*identity.job),
                     "', the request is about job '", proto::Excerpt(job), "'"));
  }
  if (identity.rank.has_value() && *identity.rank != rank) {
    return absl::PermissionDeniedError(absl::StrCat("certificate is for rank ", *identity.rank,
                                                    ", the request names rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace kaon::auth
