#include "tests/server/auth/certificates.h"

#include <glog/logging.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>

namespace kaon::testing {

Certificates::Certificates(const std::string& arguments) {
  std::string pattern = ::testing::TempDir() + "/certificates.XXXXXX";
  CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  directory_ = pattern;
  const char* runfiles = std::getenv("TEST_SRCDIR");
  CHECK(runfiles != nullptr) << "run by bazel test";
  const std::string command =
      std::string(runfiles) + "/kaon/deploy/certificates.sh '" + directory_ + "' " + arguments;
  CHECK_EQ(std::system(command.c_str()), 0) << command;
}

kaon::TlsFiles Certificates::Client(const std::string& name) const {
  return {.ca = directory_ + "/ca.crt",
          .certificate = directory_ + "/" + name + ".crt",
          .private_key = directory_ + "/" + name + ".key"};
}

v1::TlsConfig Certificates::Server(const std::string& name) const {
  v1::TlsConfig config;
  config.set_ca_file(directory_ + "/ca.crt");
  config.set_certificate_file(directory_ + "/" + name + ".crt");
  config.set_private_key_file(directory_ + "/" + name + ".key");
  return config;
}

}  // namespace kaon::testing
