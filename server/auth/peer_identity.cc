#include "server/auth/peer_identity.h"

#include <arpa/inet.h>
#include <grpc/grpc_security_constants.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

std::string CallerName(const grpc::ServerContextBase& context) {
  const std::string peer = context.peer();
  std::string address = peer.substr(0, peer.rfind(':'));
  std::string text = absl::StrReplaceAll(address, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  text.resize(std::min(text.size(), text.find('%')));
  in6_addr host;
  if (absl::StartsWith(text, "ipv6:") && inet_pton(AF_INET6, text.c_str() + 5, &host) == 1 &&
      !IN6_IS_ADDR_V4MAPPED(&host)) {
    std::memset(&host.s6_addr[8], 0, 8);
    char network[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, &host, network, sizeof(network));
    address = absl::StrCat("ipv6:", network, "/64");
  }
  return absl::StrCat(PeerName(PeerIdentity(context)), " at ", address);
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
