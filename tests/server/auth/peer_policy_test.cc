#include "server/auth/peer_policy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/server/auth/certificates.h"
#include "tests/server/auth/revocation_list.h"

namespace kaon::auth {
namespace {

class PeerPolicyTest : public ::testing::Test {
 protected:
  PeerPolicyTest() : tls_(certificates_.Server("shard")) {
    tls_.set_deny_file(certificates_.directory() + "/denied");
    Deny("# nobody\n");
    policy_ = *PeerPolicy::Create(tls_);
    holder_.uri = "spiffe://kaon.local/kaon/worker/gpt/0";
    holder_.serial = "AB";
    holder_.expires = absl::UnixEpoch();
  }

  void Deny(const std::string& text) { std::ofstream(tls_.deny_file()) << text; }

  const std::string ca_ = ::testing::TempDir() + "/peer_policy_ca";
  const testing::Certificates certificates_{"--ca-dir '" + ca_ + "'"};
  v1::TlsConfig tls_;
  std::shared_ptr<PeerPolicy> policy_;
  PeerCertificate holder_;
};

TEST_F(PeerPolicyTest, AcceptsItsOwnTrustDomainOnly) {
  EXPECT_TRUE(policy_->CheckCall(holder_).ok());
  for (const char* uri : {"spiffe://elsewhere/kaon/worker/gpt/0",
                          "spiffe://kaon.local.evil/kaon/worker", "spiffe://kaon.loca", ""}) {
    holder_.uri = uri;
    EXPECT_EQ(policy_->CheckCall(holder_).code(), absl::StatusCode::kUnauthenticated) << uri;
  }
}

TEST_F(PeerPolicyTest, ExpiryEndsConnectionsNotCalls) {
  EXPECT_TRUE(policy_->CheckConnection(holder_, holder_.expires).ok());
  const absl::Status late = policy_->CheckConnection(holder_, holder_.expires + absl::Seconds(1));
  EXPECT_EQ(late.message(),
            "certificate of spiffe://kaon.local/kaon/worker/gpt/0 expired at "
            "1970-01-01T00:00:00+00:00");
  EXPECT_TRUE(policy_->CheckCall(holder_).ok());
}

TEST_F(PeerPolicyTest, ReadsChangedListsAgainAndKeepsTheOldOnesIfItCannot) {
  Deny("serial:ab # of a test\n");
  EXPECT_TRUE(policy_->CheckCall(holder_).ok());
  policy_->Refresh();
  EXPECT_EQ(policy_->CheckCall(holder_).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(policy_->CheckConnection(holder_, absl::InfinitePast()).code(),
            absl::StatusCode::kUnauthenticated);
  for (const char* bad : {"no line that can be read\n", ""}) {
    Deny(bad);
    policy_->Refresh();
    EXPECT_FALSE(policy_->CheckCall(holder_).ok()) << bad;
  }
  Deny("serial:abc\n");
  policy_->Refresh();
  EXPECT_TRUE(policy_->CheckCall(holder_).ok());
}

TEST_F(PeerPolicyTest, AListThatCannotBeReadIsTriedAgainAndDoesNotKeepTheOtherFromUse) {
  const std::string lists = certificates_.directory() + "/lists";
  std::filesystem::create_directory(lists);
  tls_.set_crl_dir(lists);
  ASSERT_NO_FATAL_FAILURE(testing::WriteRevocationList(certificates_.directory() + "/worker-1.crt",
                                                       ca_, lists + "/good.crl"));
  policy_ = *PeerPolicy::Create(tls_);
  std::ofstream(lists + "/bad.crl") << "nothing\n";
  Deny("serial:ab\n");
  policy_->Refresh();
  EXPECT_FALSE(policy_->CheckCall(holder_).ok());
  // While the file is away, the old list stays.
  std::filesystem::rename(tls_.deny_file(), lists + "/.kept");
  policy_->Refresh();
  EXPECT_FALSE(policy_->CheckCall(holder_).ok());
  std::filesystem::rename(lists + "/.kept", tls_.deny_file());
  Deny("serial:cd\n");
  policy_->Refresh();
  EXPECT_TRUE(policy_->CheckCall(holder_).ok());
}

// The disk of the lists may be unmounted while the server runs.
TEST_F(PeerPolicyTest, KeepsItsRevocationListsWhileTheirDirectoryIsEmpty) {
  const std::string lists = certificates_.directory() + "/lists";
  std::filesystem::create_directory(lists);
  tls_.set_crl_dir(lists);
  EXPECT_EQ(PeerPolicy::Create(tls_).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_NO_FATAL_FAILURE(testing::WriteRevocationList(certificates_.directory() + "/worker-1.crt",
                                                       ca_, lists + "/good.crl"));
  policy_ = *PeerPolicy::Create(tls_);
  std::ifstream file(certificates_.directory() + "/worker-1.crt");
  const PeerCertificate revoked =
      *ParseCertificate(std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_FALSE(policy_->CheckCall(revoked).ok());
  std::filesystem::remove(lists + "/good.crl");
  policy_->Refresh();
  EXPECT_FALSE(policy_->CheckCall(revoked).ok());
}

TEST_F(PeerPolicyTest, NeedsListsThatCanBeReadAtItsStart) {
  Deny("no line that can be read\n");
  EXPECT_EQ(PeerPolicy::Create(tls_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*PeerPolicy::Create({}), nullptr);
  v1::TlsConfig no_certificates;
  no_certificates.set_deny_file(tls_.deny_file());
  EXPECT_EQ(PeerPolicy::Create(no_certificates).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kaon::auth
