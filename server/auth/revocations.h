// Holds the certificates and identities that a server refuses although its CA signed them. They
// come from a deny file and from the revocation lists (CRLs) of a directory. Immutable; any thread.
#ifndef KAON_SERVER_AUTH_REVOCATIONS_H_
#define KAON_SERVER_AUTH_REVOCATIONS_H_

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kaon/v1/config.pb.h"
#include "server/auth/peer_certificate.h"

namespace kaon::auth {

class Revocations {
 public:
  // Reads the deny file, if it is named. A line is an identity of this trust domain, which also
  // denies identities below it, or serial:HEX. Text behind # is a comment. The file is not empty
  // and ends with a line feed: one that is being written is not taken for a shorter one.
  //   NOT_FOUND            the file cannot be read
  //   FAILED_PRECONDITION  a line that is not as above; names it
  static absl::StatusOr<Revocations> ReadDenied(const v1::TlsConfig& tls,
                                                const std::string& domain);
  // Reads the CRLs in PEM of the directory, if it is named. Each is complete, and signed by a CA of
  // tls.ca_file. Errors as above, by file. It returns FAILED_PRECONDITION if there is none.
  static absl::StatusOr<Revocations> ReadRevoked(const v1::TlsConfig& tls);
  // Return a text that differs once a file that is read for the list differs, or may be read by
  // others.
  static std::string DeniedFingerprint(const v1::TlsConfig& tls);
  static std::string RevokedFingerprint(const v1::TlsConfig& tls);

  // Returns what refuses the certificate: a line, or a list; "" if nothing does.
  std::string Refuses(const PeerCertificate& certificate) const;
  size_t size() const { return identities_.size() + serials_.size() + revoked_.size(); }

 private:
  // The values say where each is listed.
  std::map<std::string, std::string> identities_;
  std::map<std::string, std::string> serials_;
  // Issuer and serial.
  std::map<std::pair<std::string, std::string>, std::string> revoked_;
};

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_REVOCATIONS_H_
