#include "server/auth/revocations.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/server/auth/certificates.h"
#include "tests/server/auth/revocation_list.h"

namespace kaon::auth {
namespace {

PeerCertificate Holder(const std::string& uri, const std::string& serial = "1") {
  return {uri, "issuer", serial, absl::InfiniteFuture()};
}

class RevocationsTest : public ::testing::Test {
 protected:
  RevocationsTest() {
    tls_ = certificates_.Server("shard");
    lists_ = certificates_.directory() + "/lists";
    std::filesystem::create_directory(lists_);
  }

  absl::StatusOr<Revocations> ReadDenied(const std::string& text) {
    tls_.set_deny_file(certificates_.directory() + "/denied");
    std::ofstream(tls_.deny_file()) << text;
    return Revocations::ReadDenied(tls_, "kaon.local");
  }

  // Writes a list that revokes the certificate `name`, signed by the CA in `ca`, to `file`.
  void Revoke(const std::string& name, const std::string& ca, const std::string& file) {
    testing::WriteRevocationList(certificates_.directory() + "/" + name + ".crt", ca, file);
  }

  PeerCertificate Read(const std::string& name) {
    std::ifstream file(certificates_.directory() + "/" + name + ".crt");
    return *ParseCertificate(std::string(std::istreambuf_iterator<char>(file), {}));
  }

  const std::string ca_ = ::testing::TempDir() + "/revocations_ca";
  const testing::Certificates certificates_{"--ca-dir '" + ca_ + "'"};
  v1::TlsConfig tls_;
  std::string lists_;
};

TEST_F(RevocationsTest, DeniesAnIdentityThoseBelowItAndSerials) {
  const auto read = ReadDenied(
      "# stolen on Monday\n"
      "  spiffe://kaon.local/kaon/worker/gpt   # all ranks\n"
      "\n"
      "spiffe://kaon.local/kaon/worker/bert/3\n"
      "serial:00ab12\n");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 3u);
  const std::string worker = "spiffe://kaon.local/kaon/worker/";
  EXPECT_EQ(read->Refuses(Holder(worker + "gpt")), "line 2 of " + tls_.deny_file());
  EXPECT_EQ(read->Refuses(Holder(worker + "gpt/7")), "line 2 of " + tls_.deny_file());
  EXPECT_EQ(read->Refuses(Holder(worker + "bert/3")), "line 4 of " + tls_.deny_file());
  EXPECT_EQ(read->Refuses(Holder("", "AB12")), "line 5 of " + tls_.deny_file());
  for (const char* other : {"gpt2", "bert", "bert/30", "bert/1"}) {
    EXPECT_EQ(read->Refuses(Holder(worker + other)), "") << other;
  }
  EXPECT_EQ(read->Refuses(Holder("spiffe://kaon.local/kaon/worker")), "");
  EXPECT_EQ(read->Refuses(Holder("", "AB1")), "");
}

TEST_F(RevocationsTest, RefusesLinesThatItCannotRead) {
  for (const char* line :
       {"worker/gpt", "serial:", "serial:0", "serial:xyz", "spiffe://kaon.local/kaon/wizard",
        "spiffe://Kaon.local/kaon/worker", "spiffe://"}) {
    const auto read = ReadDenied(std::string("serial:12\n") + line + "\n");
    EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition) << line;
    EXPECT_EQ(read.status().message().find("line 2 of " + tls_.deny_file()), 0u)
        << read.status().message();
  }
  // An empty file, and a line without its end, are being written.
  for (const char* text : {"", "serial:12\nserial:4FA"}) {
    EXPECT_EQ(ReadDenied(text).status().code(), absl::StatusCode::kFailedPrecondition) << text;
  }
  tls_.set_deny_file("/nonexistent");
  EXPECT_EQ(Revocations::ReadDenied(tls_, "kaon.local").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RevocationsTest, RefusesCertificatesOfRevocationLists) {
  tls_.set_crl_dir(lists_);
  const std::string before = Revocations::RevokedFingerprint(tls_);
  ASSERT_NO_FATAL_FAILURE(Revoke("worker-1", ca_, lists_ + "/kaon.crl"));
  EXPECT_NE(Revocations::RevokedFingerprint(tls_), before);
  const auto read = Revocations::ReadRevoked(tls_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Refuses(Read("worker-1")), "revocation list " + lists_ + "/kaon.crl");
  EXPECT_EQ(read->Refuses(Read("worker-0")), "");
  // While the CA is replaced there are two, which may have the same name.
  const std::string command = "cat '" + ca_ + "/ca.crt' >>'" + tls_.ca_file() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Revocations::ReadRevoked(tls_)->Refuses(Read("worker-1")),
            "revocation list " + lists_ + "/kaon.crl");
  // Another CA may have given the same number.
  PeerCertificate other = Read("worker-1");
  other.issuer = "another CA";
  EXPECT_EQ(read->Refuses(other), "");
}

TEST_F(RevocationsTest, RefusesListsThatItCannotTrust) {
  tls_.set_crl_dir(lists_);
  const std::string strangers = ::testing::TempDir() + "/strangers_ca";
  const testing::Certificates stranger("--ca-dir '" + strangers + "'");
  ASSERT_NO_FATAL_FAILURE(Revoke("worker-1", strangers, lists_ + "/a.crl"));
  EXPECT_NE(Revocations::ReadRevoked(tls_).status().message().find("has a list of another issuer"),
            std::string::npos);
  std::ofstream(lists_ + "/a.crl") << "nothing\n";
  EXPECT_NE(Revocations::ReadRevoked(tls_).status().message().find("has no list"),
            std::string::npos);
  std::filesystem::remove(lists_ + "/a.crl");
  EXPECT_EQ(
      Revocations::ReadRevoked(tls_).status(),
      absl::FailedPreconditionError(
          "tls crl_dir '" + lists_ +
          "' has no file: is its disk mounted? A CA that revoked nobody has an empty list; to "
          "do without lists, remove crl_dir"));
  std::filesystem::remove_all(lists_);
  EXPECT_EQ(Revocations::ReadRevoked(tls_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kaon::auth
