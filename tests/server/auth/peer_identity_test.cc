#include "server/auth/peer_identity.h"

#include <gtest/gtest.h>

#include "client/transport/channel.h"
#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::auth {
namespace {

proto::Identity Worker(const std::string& uri) { return proto::ParseIdentity(uri).value(); }

TEST(AuthorizeWorkerTest, AdmitsTheRankOfTheCertificate) {
  const proto::Identity identity = Worker("spiffe://kaon.local/kaon/worker/run/1");
  EXPECT_TRUE(AuthorizeWorker(identity, "run", 1).ok());
}

TEST(AuthorizeWorkerTest, RefusesAnotherRankNamingBoth) {
  const proto::Identity identity = Worker("spiffe://kaon.local/kaon/worker/run/1");
  const absl::Status status = AuthorizeWorker(identity, "run", 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "certificate is for rank 1, the request names rank 2");
}

TEST(AuthorizeWorkerTest, RefusesAnotherJobNamingBoth) {
  const proto::Identity identity = Worker("spiffe://kaon.local/kaon/worker/run/1");
  const absl::Status status = AuthorizeWorker(identity, "walk", 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "certificate is for job 'run', the request is about job 'walk'");
}

TEST(AuthorizeWorkerTest, WorkerWithoutRankMayTakeAny) {
  const proto::Identity identity = Worker("spiffe://kaon.local/kaon/worker/run");
  EXPECT_TRUE(AuthorizeWorker(identity, "run", 0).ok());
  EXPECT_TRUE(AuthorizeWorker(identity, "run", 7).ok());
}

TEST(AuthorizeWorkerTest, WorkerWithoutJobMayTakeAnyRankOfAny) {
  const proto::Identity identity = Worker("spiffe://kaon.local/kaon/worker");
  EXPECT_TRUE(AuthorizeWorker(identity, "run", 0).ok());
  EXPECT_TRUE(AuthorizeWorker(identity, "walk", 7).ok());
}

TEST(AuthorizeWorkerTest, RefusesOtherRoles) {
  for (const char* role : {"reader", "checkpointer", "admin", "coordinator", "shard"}) {
    const proto::Identity identity = Worker(std::string("spiffe://kaon.local/kaon/") + role);
    EXPECT_EQ(AuthorizeWorker(identity, "run", 0).code(), absl::StatusCode::kPermissionDenied)
        << role;
  }
}

TEST(PeerIdentityTest, IsThatOfTheCertificate) {
  const testing::Certificates certificates("");
  const testing::SecuredServer server(certificates.Server("shard"));
  auto channel =
      client::CreateChannel(server.address(), certificates.Client("admin"), proto::Role::kShard);
  ASSERT_TRUE(testing::CallEmpty(*channel, "/kaon.v1.ShardControl/DescribeShard").ok());
  EXPECT_EQ(server.last_peer().ToUri(), "spiffe://kaon.local/kaon/admin");
}

TEST(PeerIdentityTest, PlaintextPeerMayActForAnyRank) {
  const testing::SecuredServer server({});
  auto channel = client::CreateChannel(server.address(), {}, proto::Role::kShard);
  ASSERT_TRUE(testing::CallEmpty(*channel, "/kaon.v1.ShardControl/DescribeShard").ok());
  EXPECT_EQ(server.last_peer().role, proto::Role::kAdmin);
  EXPECT_TRUE(AuthorizeWorker(server.last_peer(), "run", 3).ok());
}

}  // namespace
}  // namespace kaon::auth
