#include "client/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "client/kaon/client_options.h"

namespace kaon {
namespace {

using ::testing::ElementsAre;

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    for (const char* name : {"KAON_DIR", "KAON_ENDPOINTS", "KAON_TLS_DIR", "KAON_CA", "KAON_CERT",
                             "KAON_KEY", "KAON_RANK", "KAON_NCCL"}) {
      unsetenv(name);
    }
  }
};

TEST_F(EnvironmentTest, NamesCoordinatorsAndCertificates) {
  setenv("KAON_ENDPOINTS", "a:1,b:2", 1);
  setenv("KAON_TLS_DIR", "/tls", 1);
  setenv("KAON_KEY", "/elsewhere.key", 1);
  const Result<ClientOptions> options = ClientOptions::FromEnvironment();
  ASSERT_TRUE(options) << options.status().ToString();
  EXPECT_THAT(options->coordinators, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(options->tls.ca, "/tls/ca.crt");
  EXPECT_EQ(options->tls.certificate, "/tls/worker.crt");
  EXPECT_EQ(options->tls.private_key, "/elsewhere.key");
}

TEST_F(EnvironmentTest, NamesTheNetworkOfNccl) {
  setenv("KAON_ENDPOINTS", "a:1", 1);
  EXPECT_EQ(ClientOptions::FromEnvironment()->nccl, "");
  setenv("KAON_NCCL", "eth1", 1);
  EXPECT_EQ(ClientOptions::FromEnvironment()->nccl, "eth1");
}

TEST_F(EnvironmentTest, NamesTheCertificateOfARank) {
  setenv("KAON_ENDPOINTS", "a:1", 1);
  setenv("KAON_TLS_DIR", "/tls", 1);
  setenv("KAON_RANK", "3", 1);
  EXPECT_EQ(ClientOptions::FromEnvironment()->tls.certificate, "/tls/worker-3.crt");
}

TEST_F(EnvironmentTest, NamesTheCertificateOfAnyRankIfTheRankHasNone) {
  const std::string directory = ::testing::TempDir();
  setenv("KAON_ENDPOINTS", "a:1", 1);
  setenv("KAON_TLS_DIR", directory.c_str(), 1);
  setenv("KAON_RANK", "1", 1);
  std::ofstream(directory + "/worker.crt") << "certificate";
  EXPECT_EQ(ClientOptions::FromEnvironment()->tls.private_key, directory + "/worker.key");
  std::ofstream(directory + "/worker-1.crt") << "certificate";
  EXPECT_EQ(ClientOptions::FromEnvironment()->tls.private_key, directory + "/worker-1.key");
}

TEST_F(EnvironmentTest, NamesNoCertificatesWithoutADirectory) {
  setenv("KAON_ENDPOINTS", "127.0.0.1:1", 1);
  EXPECT_EQ(ClientOptions::FromEnvironment()->tls.certificate, "");
}

TEST_F(EnvironmentTest, TakesAClusterOfThisMachineByItsDirectory) {
  const std::string directory = std::getenv("TEST_TMPDIR");
  setenv("KAON_DIR", directory.c_str(), 1);
  EXPECT_EQ(ClientOptions::FromEnvironment().status().ToString(),
            "NOT_FOUND: KAON_DIR: no port in '" + directory + "/coordinator.port'");
  std::ofstream(directory + "/coordinator.port") << 7700;
  const Result<ClientOptions> options = ClientOptions::FromEnvironment();
  EXPECT_THAT(options->coordinators, ElementsAre("127.0.0.1:7700"));
  EXPECT_EQ(options->tls.ca, directory + "/tls/ca.crt");
}

TEST_F(EnvironmentTest, MustNameACoordinator) {
  setenv("KAON_ENDPOINTS", " ,", 1);
  EXPECT_EQ(ClientOptions::FromEnvironment().status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon
