#include "client/transport/channel.h"

#include <arpa/inet.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/transport/certificate_check.h"
#include "client/transport/certificate_files.h"
#include "client/transport/loopback.h"
#include "proto/grpc_limits.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::client {

namespace {

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Returns whether the certificate names the dialled host. Compares exact names only: Kaon needs no
// wildcards.
bool NamesHost(const grpc::experimental::TlsCustomVerificationCheckRequest& request,
               absl::string_view host) {
  for (const grpc::string_ref& name : request.dns_names()) {
    if (absl::EqualsIgnoreCase(View(name), host)) return true;
  }
  for (const grpc::string_ref& name : request.ip_names()) {
    in6_addr wanted;
    in6_addr named;
    const std::string wanted_text(host);
    const std::string named_text(View(name));
    if (wanted_text == named_text) return true;
    // ::1 can also be written as 0:0:0:0:0:0:0:1.
    if (inet_pton(AF_INET6, wanted_text.c_str(), &wanted) == 1 &&
        inet_pton(AF_INET6, named_text.c_str(), &named) == 1 &&
        IN6_ARE_ADDR_EQUAL(&wanted, &named)) {
      return true;
    }
  }
  return false;
}

// Checks the trust domain, the role and the host after OpenSSL has checked the chain and the key
// usage. Owned by the credentials.
class RoleVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  // An empty domain is not checked.
  RoleVerifier(proto::Role expected, std::string host, std::string domain)
      : expected_(expected), host_(std::move(host)), domain_(std::move(domain)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> callback, grpc::Status* sync_status) override {
    static_cast<void>(callback);  // sync_status already holds the answer.
    const absl::Status status = Check(*request);
    *sync_status = status.ok() ? grpc::Status::OK
                               : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                              std::string(status.message()));
    return true;
  }

  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Check(const grpc::experimental::TlsCustomVerificationCheckRequest& request) const {
    const std::vector<grpc::string_ref> uris = request.uri_names();
    if (uris.size() != 1) {
      return absl::UnauthenticatedError(
          absl::StrCat("server certificate has ", uris.size(), " URI names, expecting 1"));
    }
    KAON_ASSIGN_OR_RETURN(const proto::Identity identity, proto::ParseIdentity(View(uris[0])));
    if (identity.role != expected_) {
      return absl::UnauthenticatedError(absl::StrCat("server has role ",
                                                     proto::NameOf(identity.role), ", expecting ",
                                                     proto::NameOf(expected_)));
    }
    if (!domain_.empty() && identity.domain != domain_) {
      return absl::UnauthenticatedError(
          absl::StrCat("server is of trust domain ", identity.domain, ", expecting ", domain_));
    }
    if (!NamesHost(request, host_)) {
      return absl::UnauthenticatedError(
          absl::StrCat("server certificate does not name the host ", host_));
    }
    return absl::OkStatus();
  }

  const proto::Role expected_;
  const std::string host_;
  const std::string domain_;
};

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& host, const kaon::TlsFiles& tls, proto::Role expected_server) {
  KAON_ASSIGN_OR_RETURN(const auto provider, WatchFiles(tls));
  KAON_ASSIGN_OR_RETURN(const std::string domain, TrustDomain(tls.certificate));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  // gRPC's check per call only knows names; RoleVerifier checks the host itself.
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<RoleVerifier>(expected_server, host,
                                                                            domain));
  return grpc::experimental::TlsCredentials(options);
}

grpc::ChannelArguments MakeArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(proto::kMaxMessageBytes);
  // Use only what our servers accept: no compression, and no retries below those that the client
  // counts.
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A proxy from the environment would see gradients, or fail on loopback.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each lane (laned_shard_channel.h) has its own connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The client finds a restarted server within 1 s, and abandons a handshake that lost bytes after
  // 4 s.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 4000);
  // A container that restarts may get another address. gRPC's default would resolve its name again
  // only after 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  proto::SetSharedArguments([&](const char* name, int value) { arguments.SetInt(name, value); });
  // Do not limit the pings of an idle connection.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> CreateChannel(const std::string& address,
                                                             const kaon::TlsFiles& tls,
                                                             proto::Role expected_server) {
  KAON_ASSIGN_OR_RETURN(const auto channels, CreateChannels(address, tls, expected_server, 1));
  return channels[0];
}

absl::StatusOr<std::vector<std::shared_ptr<grpc::Channel>>> CreateChannels(
    const std::string& address, const kaon::TlsFiles& tls, proto::Role expected_server,
    size_t count) {
  const std::string host(HostOf(address));
  if (host.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("address '", proto::Excerpt(address),
                                                   "' is not host:port with a port of 0 to 65535"));
  }
  KAON_ASSIGN_OR_RETURN(const bool secured, AreNamed(tls));
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (secured) {
    KAON_ASSIGN_OR_RETURN(credentials, MakeCredentials(host, tls, expected_server));
  } else if (IsLoopback(address)) {
    credentials = grpc::InsecureChannelCredentials();
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("address ", address, " is not loopback: certificates are required"));
  }
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (size_t i = 0; i < count; ++i) {
    channels.push_back(grpc::CreateCustomChannel(address, credentials, MakeArguments()));
  }
  return channels;
}

}  // namespace kaon::client
