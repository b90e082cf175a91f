// The facts of a caller's certificate that decide whether it may still be used. Pure functions; any
// thread.
#ifndef KAON_SERVER_AUTH_PEER_CERTIFICATE_H_
#define KAON_SERVER_AUTH_PEER_CERTIFICATE_H_

#include <openssl/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace kaon::auth {

struct PeerCertificate {
  // The URI name, such as spiffe://kaon.local/kaon/worker/gpt/0. Empty if there is not exactly one.
  std::string uri;
  // Name of the CA, in DER.
  std::string issuer;
  // Upper-case hexadecimal digits without leading zeros; `openssl x509 -serial` may print one.
  std::string serial;
  absl::Time expires;
};

// Parses the first certificate of a PEM text. INVALID_ARGUMENT if there is none.
absl::StatusOr<PeerCertificate> ParseCertificate(absl::string_view pem);

// Returns the name in DER.
std::string DerOf(const X509_NAME* name);

// Returns upper-case hexadecimal digits without leading zeros; "0" for zero.
std::string SerialOf(const ASN1_INTEGER* serial);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_PEER_CERTIFICATE_H_
