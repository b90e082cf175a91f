// Certificates that deploy/certificates.sh makes in the test's own scratch directory. Needs
// openssl and the script among the test's data. One thread.
#ifndef KAON_TESTS_SERVER_AUTH_CERTIFICATES_H_
#define KAON_TESTS_SERVER_AUTH_CERTIFICATES_H_

#include <string>

#include "client/kaon/client_options.h"
#include "kaon/v1/config.pb.h"

namespace kaon::testing {

// Certificates of one cluster under $TEST_TMPDIR; another object has another CA.
class Certificates {
 public:
  // `arguments` are those of the script, without the directory.
  explicit Certificates(const std::string& arguments);

  const std::string& directory() const { return directory_; }

  // Return the files of the certificate `name`, such as "worker-0", for a client or a server.
  kaon::TlsFiles Client(const std::string& name) const;
  v1::TlsConfig Server(const std::string& name) const;

 private:
  std::string directory_;
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_SERVER_AUTH_CERTIFICATES_H_
