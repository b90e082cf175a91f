#include "proto/identity.h"

#include <gtest/gtest.h>

namespace kaon::proto {
namespace {

TEST(IdentityTest, ReadsJobAndRankOfAWorker) {
  const absl::StatusOr<Identity> identity = ParseIdentity("spiffe://lab/kaon/worker/gpt2/3");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->domain, "lab");
  EXPECT_EQ(identity->role, Role::kWorker);
  EXPECT_EQ(identity->job, "gpt2");
  EXPECT_EQ(identity->rank, 3u);
}

TEST(IdentityTest, LeavesAbsentPartsOpen) {
  const absl::StatusOr<Identity> identity = ParseIdentity("spiffe://lab/kaon/worker");
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_FALSE(identity->job.has_value());
  EXPECT_FALSE(identity->rank.has_value());
}

TEST(IdentityTest, EveryRoleSurvivesPrintingAndReading) {
  for (const Role role : kRoles) {
    Identity identity;
    identity.domain = "lab";
    identity.role = role;
    identity.job = "gpt2";
    const absl::StatusOr<Identity> again = ParseIdentity(identity.ToUri());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->role, role);
    EXPECT_EQ(again->ToUri(), identity.ToUri());
  }
}

TEST(IdentityTest, RefusesWhatIsNoIdentity) {
  for (const char* uri :
       {"", "https://lab/kaon/worker", "spiffe://lab", "spiffe:///kaon/worker",
        "spiffe://lab/other/worker", "spiffe://lab/kaon/root", "spiffe://lab/kaon/worker/",
        "spiffe://lab/kaon/worker/gpt2/x", "spiffe://lab/kaon/worker/gpt2/-1",
        "spiffe://lab/kaon/worker/gpt2/ 0", "spiffe://lab/kaon/worker/gpt2/0 ",
        "spiffe://lab/kaon/worker/gpt2/+0", "spiffe://lab/kaon/worker/gpt2/00",
        "spiffe://lab/kaon/worker/gpt2/4294967296", "spiffe://lab/kaon/shard/gpt2/1",
        "spiffe://lab/kaon/worker/gpt2/1/2"}) {
    EXPECT_EQ(ParseIdentity(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
}

TEST(IdentityTest, NamesTheUnknownRoleAndTheRolesThereAre) {
  const std::string message(ParseIdentity("spiffe://lab/kaon/root").status().message());
  EXPECT_NE(message.find("unknown role 'root'"), std::string::npos) << message;
  EXPECT_NE(message.find("<worker|reader|checkpointer|admin|coordinator|shard>["),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace kaon::proto
