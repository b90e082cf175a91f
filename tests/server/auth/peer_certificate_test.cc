#include "server/auth/peer_certificate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/time/clock.h"
#include "tests/server/auth/certificates.h"

namespace kaon::auth {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(ParseCertificateTest, ReadsNameSerialAndExpiry) {
  const testing::Certificates certificates("--days 2");
  const std::string path = certificates.directory() + "/worker-1.crt";
  const auto parsed = ParseCertificate(ReadFile(path));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->uri, "spiffe://kaon.local/kaon/worker/kaon-train/1");
  const absl::Duration left = parsed->expires - absl::Now();
  EXPECT_GT(left, absl::Hours(47));
  EXPECT_LE(left, absl::Hours(48));
  const std::string serial = certificates.directory() + "/serial";
  ASSERT_EQ(
      std::system(("openssl x509 -in '" + path + "' -noout -serial >'" + serial + "'").c_str()), 0);
  // openssl prints whole bytes.
  std::string printed = ReadFile(serial).substr(std::string("serial=").size());
  printed.erase(0, printed.find_first_not_of('0'));
  EXPECT_EQ(parsed->serial + "\n", printed);
  const auto ca = ParseCertificate(ReadFile(certificates.directory() + "/ca.crt"));
  ASSERT_TRUE(ca.ok()) << ca.status();
  EXPECT_EQ(ca->uri, "");
  EXPECT_EQ(ca->issuer, parsed->issuer);
}

TEST(ParseCertificateTest, RefusesOtherText) {
  for (const char* text : {"", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}) {
    EXPECT_EQ(ParseCertificate(text).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kaon::auth
