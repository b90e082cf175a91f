#include "server/auth/peer_policy.h"

#include <glog/logging.h>
#include <grpc/grpc_security_constants.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/identity.h"
#include "proto/status_macros.h"

namespace kaon::auth {

namespace {

constexpr size_t kMaxParsed = 16384;

absl::StatusOr<PeerCertificate> ReadOwn(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream pem;
  pem << file.rdbuf();
  if (!file) {
    return absl::NotFoundError(absl::StrCat("tls certificate_file '", path, "' cannot be read"));
  }
  return ParseCertificate(pem.str());
}

}  // namespace

absl::StatusOr<std::shared_ptr<PeerPolicy>> PeerPolicy::Create(const v1::TlsConfig& tls) {
  if (tls.certificate_file().empty()) {
    if (tls.deny_file().empty() && tls.crl_dir().empty()) return nullptr;
    return absl::InvalidArgumentError(
        "tls.deny_file and tls.crl_dir need tls.certificate_file: without certificates nobody has "
        "an identity");
  }
  KAON_ASSIGN_OR_RETURN(const PeerCertificate own, ReadOwn(tls.certificate_file()));
  KAON_ASSIGN_OR_RETURN(const proto::Identity identity, proto::ParseIdentity(own.uri));
  // make_shared cannot call the constructor.
  std::shared_ptr<PeerPolicy> policy(new PeerPolicy(tls, identity.domain));
  KAON_RETURN_IF_ERROR(policy->RefreshDenied());
  KAON_RETURN_IF_ERROR(policy->RefreshRevoked());
  return policy;
}

PeerPolicy::CertificatePtr PeerPolicy::CertificateOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> pem =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.size() != 1) return nullptr;
  std::string text(pem[0].data(), pem[0].size());
  MutexLock lock(mu_);
  if (const auto found = parsed_.find(text); found != parsed_.end()) return found->second;
  absl::StatusOr<PeerCertificate> parsed = ParseCertificate(text);
  if (!parsed.ok()) return nullptr;
  if (parsed_.size() >= kMaxParsed) parsed_.clear();
  return parsed_[std::move(text)] = std::make_shared<const PeerCertificate>(*std::move(parsed));
}

absl::Status PeerPolicy::CheckCall(const PeerCertificate& certificate) const {
  if (!absl::StartsWith(certificate.uri, absl::StrCat("spiffe://", domain_, "/"))) {
    return absl::UnauthenticatedError(absl::StrCat("certificate of ", certificate.uri,
                                                   " is of another trust domain; this server's is ",
                                                   domain_));
  }
  std::shared_ptr<const Revocations> denied;
  std::shared_ptr<const Revocations> revoked;
  {
    MutexLock lock(mu_);
    denied = denied_.read;
    revoked = revoked_.read;
  }
  std::string refuses = denied->Refuses(certificate);
  if (refuses.empty()) refuses = revoked->Refuses(certificate);
  if (refuses.empty()) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("certificate of ", certificate.uri, ", serial ",
                                                 certificate.serial, ", is denied by ", refuses));
}

absl::Status PeerPolicy::CheckConnection(const PeerCertificate& certificate, absl::Time now) const {
  if (now > certificate.expires) {
    return absl::UnauthenticatedError(absl::StrCat(
        "certificate of ", certificate.uri, " expired at ",
        absl::FormatTime(absl::RFC3339_sec, certificate.expires, absl::UTCTimeZone())));
  }
  return CheckCall(certificate);
}

void PeerPolicy::Replace(List& list, std::string fingerprint, Revocations read) {
  LOG_IF(INFO, list.read != nullptr || read.size() > 0)
      << read.size() << " certificates and identities are denied";
  list.fingerprint = std::move(fingerprint);
  auto shared = std::make_shared<const Revocations>(std::move(read));
  MutexLock lock(mu_);
  list.read = std::move(shared);
}

// The fingerprint is taken first: a file that is written meanwhile is read again.
absl::Status PeerPolicy::RefreshDenied() {
  std::string fingerprint = Revocations::DeniedFingerprint(tls_);
  if (denied_.read != nullptr && fingerprint == denied_.fingerprint) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(Revocations read, Revocations::ReadDenied(tls_, domain_));
  Replace(denied_, std::move(fingerprint), std::move(read));
  return absl::OkStatus();
}

absl::Status PeerPolicy::RefreshRevoked() {
  std::string fingerprint = Revocations::RevokedFingerprint(tls_);
  if (revoked_.read != nullptr && fingerprint == revoked_.fingerprint) return absl::OkStatus();
  KAON_ASSIGN_OR_RETURN(Revocations read, Revocations::ReadRevoked(tls_));
  Replace(revoked_, std::move(fingerprint), std::move(read));
  return absl::OkStatus();
}

void PeerPolicy::Refresh() {
  // One that cannot be read does not keep the other one from use.
  for (const absl::Status& refreshed : {RefreshDenied(), RefreshRevoked()}) {
    if (refreshed.ok()) continue;
    LOG_EVERY_T(ERROR, 10) << "a list of denied certificates stays as it was: " << refreshed;
  }
}

}  // namespace kaon::auth
