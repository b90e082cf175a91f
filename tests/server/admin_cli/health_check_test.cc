#include "server/admin_cli/health_check.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "kaon/v1/admin.grpc.pb.h"

namespace kaon::admin_cli {
namespace {

TEST(HealthCheckTest, TellsServicesApart) {
  grpc::EnableDefaultHealthCheckService(true);
  v1::Admin::Service service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                           grpc::InsecureChannelCredentials());
  server->GetHealthCheckService()->SetServingStatus("kaon.v1.A", true);
  server->GetHealthCheckService()->SetServingStatus("kaon.v1.B", false);
  EXPECT_EQ(*CheckHealth(channel, "kaon.v1.A", absl::Seconds(30)), "SERVING");
  EXPECT_EQ(*CheckHealth(channel, "kaon.v1.B", absl::Seconds(30)), "NOT_SERVING");
  EXPECT_EQ(CheckHealth(channel, "kaon.v1.C", absl::Seconds(30)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(HealthCheckTest, SaysWhyAServerDoesNotAnswer) {
  const auto channel = grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials());
  EXPECT_EQ(CheckHealth(channel, "kaon.v1.A", absl::Seconds(30)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kaon::admin_cli
