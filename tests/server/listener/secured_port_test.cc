#include "server/listener/secured_port.h"

#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include "client/transport/channel.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "tests/server/auth/certificates.h"
#include "tests/server/auth/secured_server.h"

namespace kaon::listener {
namespace {

TEST(SecuredPortTest, CountsCallsAndRefusals) {
  const testing::Certificates certificates("");
  monitor::EventCounts counts;
  v1::ShardControl::Service service;
  grpc::ServerBuilder builder;
  const auto listener =
      AddSecuredPort(builder, certificates.Server("shard"), "127.0.0.1:0", counts);
  ASSERT_TRUE(listener.ok()) << listener.status();
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_TRUE((*listener)->Start(/*reserve=*/0, /*tls=*/true).ok());
  const std::string address = "127.0.0.1:" + std::to_string((*listener)->port());
  const auto call = [&](const char* name) {
    const auto channel =
        client::CreateChannel(address, certificates.Client(name), proto::Role::kShard);
    return testing::CallEmpty(*channel, "/kaon.v1.ShardControl/DescribeShard").error_code();
  };
  EXPECT_EQ(call("coordinator"), grpc::UNIMPLEMENTED);
  EXPECT_EQ(call("worker-0"), grpc::PERMISSION_DENIED);
  const std::vector<v1::EventCount> happened = counts.Happened();
  ASSERT_EQ(happened.size(), 2u);
  EXPECT_EQ(happened[0].name(), "call");
  EXPECT_EQ(happened[0].count(), 2u);
  EXPECT_EQ(happened[1].name(), "call_unauthorized");
  EXPECT_EQ(happened[1].count(), 1u);
  (*listener)->Stop();
  server->Shutdown();
}

TEST(SecuredPortTest, RefusesListsThatItCannotRead) {
  const testing::Certificates certificates("");
  v1::TlsConfig tls = certificates.Server("shard");
  tls.set_deny_file("/nonexistent");
  monitor::EventCounts counts;
  grpc::ServerBuilder builder;
  EXPECT_EQ(AddSecuredPort(builder, tls, "127.0.0.1:0", counts).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kaon::listener
