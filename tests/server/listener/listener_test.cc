#include "server/listener/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "client/transport/channel.h"
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

TEST_F(ListenerTest, CountsTheCallsOfAConnectionAndTheirMessages) {
  const auto channel =
      client::CreateChannel(server_.address(), certificates_.Client("admin"), proto::Role::kShard);
  v1::DescribeShardRequest request;
  request.set_job(std::string(1000, 'j'));
  v1::DescribeShardResponse response;
  grpc::ClientContext context;
  const grpc::Status status =
      v1::ShardControl::NewStub(*channel)->DescribeShard(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<ConnectionUse> uses = server_.listener().Uses();
  // The client may have the answer before the call has ended.
  while (uses.at(0).open_calls > 0) uses = server_.listener().Uses();
  EXPECT_EQ(uses[0].taken_bytes, request.ByteSizeLong());
  EXPECT_EQ(uses[0].taken_messages, 1u);
  EXPECT_GT(uses[0].received_bytes, 1000u);
  EXPECT_THAT(uses[0].owner, ::testing::HasSubstr("admin"));
}

// A call that is not authorized has no handler, so it counts for a while after its end.
TEST(ListenerCallLimitsTest, EndsAConnectionThatGoesOnBeyondItsCalls) {
  const testing::Certificates certificates("");
  testing::SecuredServer server(certificates.Server("shard"), "127.0.0.1:0", /*calls=*/4);
  const auto channel =
      client::CreateChannel(server.address(), certificates.Client("worker-0"), proto::Role::kShard);
  EXPECT_EQ(testing::CallEmpty(*channel, "/kaon.v1.Coordinator/GetJob").error_code(),
            grpc::UNIMPLEMENTED);
  const uint64_t connection = server.listener().Uses().at(0).id;
  const auto is_open = [&] {
    for (const ConnectionUse& use : server.listener().Uses()) {
      if (use.id == connection) return true;
    }
    return false;
  };
  int denied = 0;
  int refused = 0;
  while (is_open()) {
    const grpc::Status status = testing::CallEmpty(*channel, kDescribe);
    denied += status.error_code() == grpc::PERMISSION_DENIED;
    refused += status.error_code() == grpc::UNAVAILABLE &&
               status.error_message().find("at most 4 calls of one connection may be open") !=
                   std::string::npos;
  }
  // The first call has no handler either.
  EXPECT_GE(denied, 3);
  EXPECT_GE(refused, 63);
}

// gRPC sets it on the sockets that it listens on itself.
TEST_F(ListenerTest, SendsSmallMessagesAtOnce) {
  int found = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    int listens = 0;
    size = sizeof(listens);
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    if (listens == 0 || ntohs(address.sin_port) != server_.listener().port()) continue;
    ++found;
    int no_delay = 0;
    size = sizeof(no_delay);
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    EXPECT_EQ(no_delay, 1);
  }
  EXPECT_GE(found, 1);
}

TEST_F(ListenerTest, RefusesAPortInUseAndAHostThatIsNotOurs) {
  monitor::EventCounts counts;
  EXPECT_EQ(Listener::Bind(server_.address(), counts).status(),
            absl::FailedPreconditionError(
                "cannot listen on " + server_.address() + ": Address already in use, by pid " +
                std::to_string(getpid()) + " (listener_test); stop it or choose another port"));
  EXPECT_EQ(Listener::CheckAddress(server_.address()), absl::OkStatus());
  for (const absl::Status& status :
       {Listener::Bind("192.0.2.1:0", counts).status(), Listener::CheckAddress("192.0.2.1:0")}) {
    EXPECT_EQ(status.message(), "cannot listen on 192.0.2.1:0: Cannot assign requested address");
  }
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
