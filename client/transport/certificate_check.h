// Checks the certificate files of a process at its start, before a handshake can fail on them.
// Reads files; any thread.
#ifndef KAON_CLIENT_TRANSPORT_CERTIFICATE_CHECK_H_
#define KAON_CLIENT_TRANSPORT_CERTIFICATE_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/kaon/client_options.h"
#include "proto/identity.h"

namespace kaon::client {

// Use that the owner makes of a certificate.
struct CertificateUse {
  // Roles that the certificate may name.
  std::vector<proto::Role> roles;
  // `serves`: the owner accepts connections. `calls`: it opens connections.
  bool serves = false;
  bool calls = false;
};

// Returns every role that a caller may have.
std::vector<proto::Role> AllRoles();

// Returns a warning if the certificate expires soon, otherwise "". Returns "" if no files are
// named.
//   INVALID_ARGUMENT     only some of the three files are named
//   NOT_FOUND            a file cannot be read
//   FAILED_PRECONDITION  a file is not PEM, others may read the key, the key is not that of the
//                        certificate, the CA did not sign it, it is expired or not valid yet, or it
//                        is for another role or use
// Each error names the file and the fault. `at` replaces the present time if set.
absl::StatusOr<std::string> CheckCertificates(const kaon::TlsFiles& files,
                                              const CertificateUse& use,
                                              std::optional<absl::Time> at = std::nullopt);

// Returns the trust domain of the first certificate in the file; "" if it names no identity, which
// every server refuses. Errors as CheckCertificates.
absl::StatusOr<std::string> TrustDomain(const std::string& certificate_file);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CERTIFICATE_CHECK_H_
