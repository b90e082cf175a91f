// Checks the certificate files that a process starts with, before a handshake can fail on them.
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

// What the owner of a certificate does with it.
struct CertificateUse {
  // Roles that it may name.
  std::vector<proto::Role> roles;
  // Accepts connections, and opens them.
  bool serves = false;
  bool calls = false;
};

// Every role that a caller may have.
std::vector<proto::Role> AllRoles();

// Returns a warning, empty for none: the certificate is about to expire. Without files all is well.
//   INVALID_ARGUMENT     only some of the three files are named
//   NOT_FOUND            a file cannot be read
//   FAILED_PRECONDITION  a file is not PEM, others may read the key, the key is not that of the
//                        certificate, the CA did not sign it, it is expired or not valid yet, or it
//                        is for another role or use
// Each names file and fault. `at` stands for the present time where it is given.
absl::StatusOr<std::string> CheckCertificates(const kaon::TlsFiles& files,
                                              const CertificateUse& use,
                                              std::optional<absl::Time> at = std::nullopt);

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_CERTIFICATE_CHECK_H_
