#include "server/process/standard_services.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>

#include "kaon/v1/server_process.grpc.pb.h"
#include "server/admin_cli/health_check.h"
#include "tests/testing/service_listing.h"

namespace kaon::process {
namespace {

using ::testing::IsSupersetOf;

TEST(StandardServicesTest, ToolsSeeTheServicesAndTheirHealth) {
  // A process may have several servers.
  EnableStandardServices();
  EnableStandardServices();
  v1::ServerProcess::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string name = v1::ServerProcess::service_full_name();
  ShowServing(*server, {name});
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  const auto services = testing::ListServices(channel);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(*services, IsSupersetOf({name, std::string("grpc.health.v1.Health"),
                                       std::string("grpc.reflection.v1alpha.ServerReflection")}));
  EXPECT_EQ(admin_cli::CheckHealth(channel, name, absl::Minutes(1)).value_or("-"), "SERVING");
  EXPECT_EQ(admin_cli::CheckHealth(channel, "other", absl::Minutes(1)).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kaon::process
