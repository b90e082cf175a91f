#include "server/auth/server_credentials.h"

#include <glog/logging.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/kaon/client.h"
#include "client/transport/certificate_check.h"
#include "client/transport/certificate_files.h"
#include "client/transport/channel.h"
#include "client/transport/loopback.h"
#include "proto/grpc_limits.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/auth/authorization_matrix.h"
#include "server/auth/peer_identity.h"

namespace kaon::auth {

namespace {

// gRPC parses all that one read returns before anybody can end the connection. 1 MiB holds 7,500
// streams, which take 130 MB.
constexpr int kReadBytes = 64 << 10;

// Runs for every call before its handler. Owned by the credentials; any of gRPC's threads.
class MethodAuthorizer : public grpc::AuthMetadataProcessor {
 public:
  MethodAuthorizer(std::shared_ptr<PeerPolicy> policy, OnRefused on_refused, OnCall on_call)
      : policy_(std::move(policy)),
        on_refused_(std::move(on_refused)),
        on_call_(std::move(on_call)) {}

  // Process only looks up values, so it may run on gRPC's thread.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    if (on_call_) on_call_();
    const absl::Status authorized = Authorize(metadata, *context);
    if (!authorized.ok() && on_refused_) {
      const absl::StatusOr<proto::Identity> peer = CertificateIdentity(*context);
      on_refused_(peer.ok() ? peer->ToUri() : "a certificate that names nobody", authorized);
    }
    return proto::ToGrpc(authorized);
  }

 private:
  absl::Status Authorize(const InputMetadata& metadata, const grpc::AuthContext& context) {
    const auto path = metadata.find(":path");
    if (path == metadata.end()) return absl::PermissionDeniedError("call names no method");
    KAON_ASSIGN_OR_RETURN(const proto::Identity identity, CertificateIdentity(context));
    const PeerPolicy::CertificatePtr certificate = policy_->CertificateOf(context);
    if (certificate == nullptr) return absl::UnauthenticatedError("certificate cannot be read");
    KAON_RETURN_IF_ERROR(policy_->CheckCall(*certificate));
    return AuthorizeMethod(identity.role,
                           absl::string_view(path->second.data(), path->second.size()));
  }

  const std::shared_ptr<PeerPolicy> policy_;
  const OnRefused on_refused_;
  const OnCall on_call_;
};

kaon::TlsFiles FilesOf(const v1::TlsConfig& tls) {
  return {tls.ca_file(), tls.certificate_file(), tls.private_key_file()};
}

// Returns whether the server has certificates. Returns an error if it must have them and does not.
absl::StatusOr<bool> IsSecured(const v1::TlsConfig& tls, absl::string_view listen) {
  if (client::HostOf(listen).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("listen '", proto::Excerpt(listen),
                                                   "' is not host:port with a port of 0 to 65535"));
  }
  KAON_ASSIGN_OR_RETURN(const bool secured, client::AreNamed(FilesOf(tls)));
  if (secured || client::IsLoopback(listen)) return secured;
  return absl::FailedPreconditionError(
      absl::StrCat("listen ", listen,
                   " is not a loopback address: set tls.ca_file, tls.certificate_file and "
                   "tls.private_key_file, or listen on 127.0.0.1"));
}

}  // namespace

absl::Status CheckServerTls(const v1::TlsConfig& tls, absl::string_view listen, proto::Role role) {
  KAON_RETURN_IF_ERROR(IsSecured(tls, listen).status());
  // A coordinator is also a client: it calls the shards.
  const client::CertificateUse use = {
      .roles = {role}, .serves = true, .calls = role == proto::Role::kCoordinator};
  KAON_ASSIGN_OR_RETURN(const std::string warning, client::CheckCertificates(FilesOf(tls), use));
  LOG_IF(WARNING, !warning.empty()) << warning;
  return PeerPolicy::Create(tls).status();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CreateServerCredentials(
    const v1::TlsConfig& tls, absl::string_view listen, std::shared_ptr<PeerPolicy> policy,
    OnRefused on_refused, OnCall on_call) {
  KAON_ASSIGN_OR_RETURN(const bool secured, IsSecured(tls, listen));
  if (!secured) return grpc::InsecureServerCredentials();
  KAON_ASSIGN_OR_RETURN(const auto provider, client::WatchFiles(FilesOf(tls)));
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<MethodAuthorizer>(
      std::move(policy), std::move(on_refused), std::move(on_call)));
  return credentials;
}

void HardenServer(grpc::ServerBuilder& builder) {
  // PushStream and PullStream accept less: one chunk.
  builder.SetMaxReceiveMessageSize(proto::kMaxMessageBytes);
  builder.SetMaxSendMessageSize(proto::kMaxMessageBytes);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 256);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  proto::SetSharedArguments([&](const char* name, int value) {
    const bool chunk = absl::StrContains(name, "read_chunk_size");
    builder.AddChannelArgument(name, chunk ? kReadBytes : value);
  });
  // Callers ping every kKeepaliveTime, with or without a call. Twice as often is abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             absl::ToInt64Milliseconds(proto::kKeepaliveTime / 2));
}

}  // namespace kaon::auth
