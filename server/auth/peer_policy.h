// Decides which certificates of the cluster's CA a server accepts: those of its own trust domain
// that are neither denied nor revoked, until they expire. The lists can change while the server
// runs; Refresh reads them again. Thread-safe. Shared by the credentials and the listener.
#ifndef KAON_SERVER_AUTH_PEER_POLICY_H_
#define KAON_SERVER_AUTH_PEER_POLICY_H_

#include <grpcpp/security/auth_context.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kaon/v1/config.pb.h"
#include "kernels/mutex.h"
#include "server/auth/peer_certificate.h"
#include "server/auth/revocations.h"

namespace kaon::auth {

class PeerPolicy {
 public:
  using CertificatePtr = std::shared_ptr<const PeerCertificate>;

  // Reads the server's own certificate and the lists. Returns null without certificates.
  //   INVALID_ARGUMENT     lists without certificates, or a certificate that names no identity
  //   NOT_FOUND, FAILED_PRECONDITION  as those of Revocations
  static absl::StatusOr<std::shared_ptr<PeerPolicy>> Create(const v1::TlsConfig& tls);

  // Returns the certificate that the handshake has verified; null if there is none.
  CertificatePtr CertificateOf(const grpc::AuthContext& context) ABSL_LOCKS_EXCLUDED(mu_);

  // UNAUTHENTICATED if the certificate is of another trust domain, denied or revoked. Ignores its
  // expiry, which the handshake has checked: a caller with a renewed certificate must be able to
  // connect again, not fail.
  absl::Status CheckCall(const PeerCertificate& certificate) const ABSL_LOCKS_EXCLUDED(mu_);
  // CheckCall; also UNAUTHENTICATED once the certificate has expired.
  absl::Status CheckConnection(const PeerCertificate& certificate, absl::Time now) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Reads each list again whose files have changed. While one cannot be read, logs why, keeps the
  // old one and tries again. One thread at a time.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  PeerPolicy(v1::TlsConfig tls, std::string domain)
      : tls_(std::move(tls)), domain_(std::move(domain)) {}

  // A list, and the files that it is of. Only Create and Refresh use the text.
  struct List {
    std::string fingerprint;
    std::shared_ptr<const Revocations> read;
  };
  absl::Status RefreshDenied();
  absl::Status RefreshRevoked();
  void Replace(List& list, std::string fingerprint, Revocations read) ABSL_LOCKS_EXCLUDED(mu_);

  const v1::TlsConfig tls_;
  const std::string domain_;

  mutable Mutex mu_;
  List denied_;
  List revoked_;
  // Their keys are PEM texts. It is cleared when there are many.
  std::unordered_map<std::string, CertificatePtr> parsed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_PEER_POLICY_H_
