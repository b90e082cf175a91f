#include "server/listener/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "client/channel.h"
#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::listener {
namespace {

constexpr char kDescribe[] = "/kaon.v1.ShardControl/DescribeShard";

class ListenerTest : public ::testing::Test {
 protected:
  grpc::Status CallAs(const std::string& name) {
    return testing::CallEmpty(
        *client::CreateChannel(server_.address(), certificates_.Client(name), proto::Role::kShard),
        kDescribe);
  }

  const testing::Certificates certificates_{""};
  testing::SecuredServer server_{certificates_.Server("shard")};
};

TEST_F(ListenerTest, KnowsAPeerByItsFirstAuthorizedCall) {
  auto refused = client::CreateChannel(server_.address(), certificates_.Client("worker-0"),
                                       proto::Role::kShard);
  EXPECT_EQ(testing::CallEmpty(*refused, kDescribe).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_EQ(server_.listener().num_unknown(), 1u);
  auto taken =
      client::CreateChannel(server_.address(), certificates_.Client("admin"), proto::Role::kShard);
  EXPECT_TRUE(testing::CallEmpty(*taken, kDescribe).ok());
  EXPECT_EQ(server_.listener().num_unknown(), 1u);
}

TEST_F(ListenerTest, RefusesAPortInUseAndAHostThatIsNotOurs) {
  monitor::EventCounts counts;
  EXPECT_EQ(Listener::Bind(server_.address(), counts).status(),
            absl::FailedPreconditionError("cannot listen on " + server_.address() +
                                          ": Address already in use"));
  EXPECT_EQ(Listener::Bind("192.0.2.1:0", counts).status().message(),
            "cannot listen on 192.0.2.1:0: Cannot assign requested address");
}

TEST(ListenerLimitTest, SaysWhichLimitOfOpenFilesItNeeds) {
  monitor::EventCounts counts;
  auto listener = Listener::Bind("localhost:0", counts);
  ASSERT_TRUE(listener.ok()) << listener.status();
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(std::string((*listener)->Start(1000, true).message()),
              ::testing::ContainsRegex("ulimit -n. is 100, must be at least 10[0-9][0-9]: "));
}

}  // namespace
}  // namespace kaon::listener
