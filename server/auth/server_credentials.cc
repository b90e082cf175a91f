#include "server/auth/server_credentials.h"

#include <glog/logging.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/kaon/client.h"
#include "client/transport/certificate_check.h"
#include "client/transport/certificate_files.h"
#include "client/transport/channel.h"
#include "client/transport/loopback.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "proto/grpc_limits.h"
#include "proto/grpc_status.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "server/auth/authorization_matrix.h"
#include "server/auth/peer_identity.h"

namespace kaon::auth {

namespace {

// gRPC parses all that one read returns before anybody can end the connection. 1 MiB holds 7,500
// streams, which take 130 MB. So a server reads little at once until it has read all that a
// connection had. A flood always has more.
constexpr int kFirstReadBytes = 8 << 10;
constexpr int kReadBytes = 64 << 10;
// Property of a connection's context: its number in CallLimits.
constexpr char kConnection[] = "kaon_connection";

uint64_t HeaderBytes(const grpc::AuthMetadataProcessor::InputMetadata& metadata) {
  uint64_t bytes = 0;
  // HTTP/2 counts 32 bytes for each header.
  for (const auto& [key, value] : metadata) bytes += key.size() + value.size() + 32;
  return bytes;
}

// Runs for every call before its handler. Owned by the credentials; any of gRPC's threads.
class MethodAuthorizer : public grpc::AuthMetadataProcessor {
 public:
  MethodAuthorizer(std::shared_ptr<PeerPolicy> policy, OnRefused on_refused, OnCall on_call,
                   std::shared_ptr<CallLimits> limits)
      : policy_(std::move(policy)),
        on_refused_(std::move(on_refused)),
        on_call_(std::move(on_call)),
        limits_(std::move(limits)) {}

  // Process only looks up values and counts, so it may run on gRPC's thread.
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    if (on_call_) on_call_();
    const absl::Status authorized = Authorize(metadata, *context);
    const absl::StatusOr<proto::Identity> peer = CertificateIdentity(*context);
    const std::string name = peer.ok() ? peer->ToUri() : "a certificate that names nobody";
    // Calls that their role may not make take memory as well. Those with a denied certificate must
    // not take the share of its successor, which has the same identity.
    const absl::Status few = Count(
        metadata, *context, absl::IsUnauthenticated(authorized) ? "refused certificates" : name);
    if (!few.ok()) return proto::ToGrpc(few);
    if (!authorized.ok() && on_refused_) on_refused_(name, authorized);
    return proto::ToGrpc(authorized);
  }

 private:
  // UNAVAILABLE if the call is beyond a limit.
  absl::Status Count(const InputMetadata& metadata, grpc::AuthContext& context,
                     const std::string& identity) {
    if (limits_ == nullptr) return absl::OkStatus();
    const absl::Time now = SteadyNow();
    uint64_t connection = 0;
    {
      // Calls of one connection share its context, and gRPC reads it without a lock. Nobody else
      // adds to it, and nobody reads it before the first call of its connection has been here.
      MutexLock lock(mu_);
      connection = ConnectionOf(context);
      if (connection == 0) {
        connection = limits_->Connect(now);
        context.AddProperty(kConnection, std::to_string(connection));
      }
    }
    absl::Status status = limits_->Arrive(connection, identity, HeaderBytes(metadata), now);
    if (!status.ok()) {
      LOG_EVERY_T(WARNING, 1) << "call of " << identity << " refused: " << status.message();
    }
    return status;
  }

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
  const std::shared_ptr<CallLimits> limits_;
  // Guards the contexts of all connections while a number is added.
  Mutex mu_;
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
    OnRefused on_refused, OnCall on_call, std::shared_ptr<CallLimits> limits) {
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
      std::move(policy), std::move(on_refused), std::move(on_call), std::move(limits)));
  return credentials;
}

uint64_t ConnectionOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> found = context.FindPropertyValues(kConnection);
  uint64_t number = 0;
  if (found.size() != 1) return 0;
  return absl::SimpleAtoi(absl::string_view(found[0].data(), found[0].size()), &number) ? number
                                                                                        : 0;
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
    if (name == absl::string_view(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE)) {
      value = kReadBytes;
    } else if (absl::StrContains(name, "read_chunk_size")) {
      value = kFirstReadBytes;
    }
    builder.AddChannelArgument(name, value);
  });
  // Callers ping every kKeepaliveTime, with or without a call. Twice as often is abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             absl::ToInt64Milliseconds(proto::kKeepaliveTime / 2));
}

}  // namespace kaon::auth
