// Makes revocation lists for tests, by openssl.
#ifndef KAON_TESTS_SERVER_AUTH_REVOCATION_LIST_H_
#define KAON_TESTS_SERVER_AUTH_REVOCATION_LIST_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace kaon::testing {

// Writes a list to `file` that revokes `certificate`, signed by the CA in the directory `ca`.
inline void WriteRevocationList(const std::string& certificate, const std::string& ca,
                                const std::string& file) {
  const std::string command =
      "cd '" + ca + "' && echo 01 >number && : >index && printf '" +
      "[ca]\\ndefault_ca=d\\n[d]\\ndatabase=index\\ncrlnumber=number\\ndefault_md=sha256\\n" +
      "default_crl_days=1\\ncertificate=ca.crt\\nprivate_key=ca.key\\n' >cnf && " +
      "{ openssl ca -config cnf -revoke '" + certificate +
      "' && openssl ca -config cnf -gencrl -out '" + file + "'; } >log 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace kaon::testing

#endif  // KAON_TESTS_SERVER_AUTH_REVOCATION_LIST_H_
