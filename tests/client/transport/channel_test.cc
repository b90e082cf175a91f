#include "client/transport/channel.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::client {
namespace {

using proto::Role;
using testing::CallEmpty;
using testing::Certificates;
using testing::SecuredServer;

constexpr char kDescribe[] = "/kaon.v1.ShardControl/DescribeShard";

TEST(ChannelTest, ReachesServerOfTheExpectedRoleByEveryNameOfItsCertificate) {
  const Certificates certificates("");
  const SecuredServer server(certificates.Server("shard"));
  for (const char* host : {"127.0.0.1", "localhost"}) {
    auto channel = CreateChannel(server.address(host), certificates.Client("admin"), Role::kShard);
    ASSERT_TRUE(channel.ok()) << channel.status();
    const grpc::Status status = CallEmpty(*channel, kDescribe);
    EXPECT_TRUE(status.ok()) << host << ": " << status.error_message();
  }
}

TEST(ChannelTest, EachOfSeveralChannelsHasItsOwnConnection) {
  const Certificates certificates("");
  const SecuredServer server(certificates.Server("shard"));
  const auto channels =
      CreateChannels(server.address(), certificates.Client("admin"), Role::kShard, 3);
  ASSERT_TRUE(channels.ok()) << channels.status();
  std::set<std::string> connections;
  for (const std::shared_ptr<grpc::Channel>& channel : *channels) {
    EXPECT_TRUE(CallEmpty(channel, kDescribe).ok());
    connections.insert(server.last_connection());
  }
  EXPECT_EQ(connections.size(), 3u);
}

TEST(ChannelTest, RefusesServerOfAnotherRole) {
  const Certificates certificates("");
  const SecuredServer server(certificates.Server("shard"));
  auto channel = CreateChannel(server.address(), certificates.Client("admin"), Role::kCoordinator);
  const grpc::Status status = CallEmpty(*channel, kDescribe);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("server has role shard, expecting coordinator"),
            std::string::npos)
      << status.error_message();
  EXPECT_EQ(server.described(), 0);
}

TEST(ChannelTest, RefusesServerOfAnotherCa) {
  const Certificates certificates("");
  const Certificates strangers("");
  const SecuredServer server(strangers.Server("shard"));
  auto channel = CreateChannel(server.address(), certificates.Client("admin"), Role::kShard);
  EXPECT_EQ(CallEmpty(*channel, kDescribe).error_code(), grpc::UNAVAILABLE);
}

TEST(ChannelTest, RefusesServerWhoseCertificateDoesNotNameTheHost) {
  const Certificates certificates("");
  const SecuredServer server(certificates.Server("shard"), "127.0.0.2:0");
  // Another loopback address; the certificate names 127.0.0.1 only.
  auto channel =
      CreateChannel(server.address("127.0.0.2"), certificates.Client("admin"), Role::kShard);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const grpc::Status status = CallEmpty(*channel, kDescribe);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("does not name the host 127.0.0.2"), std::string::npos)
      << status.error_message();
}

TEST(ChannelTest, RefusesPlaintextOffLoopback) {
  EXPECT_EQ(CreateChannel("10.0.0.1:443", {}, Role::kShard).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ChannelTest, RefusesAddressesThatAreNotHostAndPort) {
  for (const char* address : {"", "localhost", "dns:///localhost:1", "127.0.0.1:1,10.0.0.1:2"}) {
    EXPECT_EQ(CreateChannel(address, {}, Role::kShard).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(ChannelTest, RefusesHalfASetOfFiles) {
  const kaon::TlsFiles tls = {.ca = "ca.crt", .certificate = "", .private_key = ""};
  EXPECT_EQ(CreateChannel("localhost:1", tls, Role::kShard).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChannelTest, NamesTheFileThatCannotBeRead) {
  const kaon::TlsFiles tls = {.ca = "/nonexistent/ca", .certificate = "/x", .private_key = "/y"};
  const absl::Status status = CreateChannel("localhost:1", tls, Role::kShard).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "tls ca file '/nonexistent/ca' cannot be read");
}

}  // namespace
}  // namespace kaon::client
