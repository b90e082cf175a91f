#include "client/transport/certificate_files.h"

#include <gtest/gtest.h>

#include "tests/server/auth/certificates.h"

namespace kaon::client {
namespace {

TEST(AreNamedTest, WantsAllOrNone) {
  EXPECT_FALSE(*AreNamed({"", "", ""}));
  EXPECT_TRUE(*AreNamed({"ca", "certificate", "key"}));
  const absl::Status status = AreNamed({"ca", "", "key"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "tls: 2 of the files ca, certificate and private key named, expecting 3 or 0");
}

TEST(WatchFilesTest, NamesTheFileThatCannotBeRead) {
  const testing::Certificates certificates("");
  const kaon::TlsFiles good = certificates.Client("admin");
  EXPECT_TRUE(WatchFiles(good).ok());
  kaon::TlsFiles files = good;
  files.ca = "/nonexistent/ca";
  EXPECT_EQ(WatchFiles(files).status(),
            absl::NotFoundError("tls ca file '/nonexistent/ca' cannot be read"));
  files = good;
  files.certificate = "/nonexistent/crt";
  EXPECT_EQ(WatchFiles(files).status(),
            absl::NotFoundError("tls certificate file '/nonexistent/crt' cannot be read"));
  files = good;
  files.private_key = "/nonexistent/key";
  EXPECT_EQ(WatchFiles(files).status(),
            absl::NotFoundError("tls private key file '/nonexistent/key' cannot be read"));
}

}  // namespace
}  // namespace kaon::client
