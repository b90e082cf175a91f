#include "server/shard/shard_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/server/shard/served_shard.h"

namespace kaon::shard {
namespace {

class ShardServerTest : public ServedShardTest {
 protected:
  v1::ShardConfig Config() {
    v1::ShardConfig config;
    config.set_data_dir(data_dir_ + "_other");
    config.set_gemm("reference");
    return config;
  }
  void ExpectRefused(const v1::ShardConfig& config, absl::StatusCode code,
                     const std::string& words) {
    const absl::Status status = ShardServer::Start(config).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  }
};

TEST_F(ShardServerTest, ReportsDataLossWhenItRestartsAfterItPromised) {
  PlanStepOne();
  coordinator_.reset();
  server_.reset();
  v1::ShardConfig config = Config();
  config.set_data_dir(data_dir_);
  absl::StatusOr<std::unique_ptr<ShardServer>> restarted = ShardServer::Start(config);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  server_ = *std::move(restarted);
  channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                 grpc::InsecureChannelCredentials());
  data_ = v1::ShardData::NewStub(channel_);
  control_ = v1::ShardControl::NewStub(channel_);
  ControlCall coordinator(*control_);
  const v1::ShardState state = coordinator.Ask(PromiseOf(2)).state();
  EXPECT_NE(state.data_loss().find("restarted"), std::string::npos) << state.data_loss();
  EXPECT_EQ(coordinator.Ask(PlanOf(RegistrationPlan(2, 1))).refused().reason(),
            v1::REFUSAL_REASON_DATA_LOSS);
  EXPECT_EQ(Push({OpenRequest(0, 1)}).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Pull(PullOf(0, {0})).error_code(), grpc::StatusCode::DATA_LOSS);
}

TEST_F(ShardServerTest, ARestartBeforeAnyPromiseLosesNothing) {
  server_.reset();
  v1::ShardConfig config = Config();
  config.set_data_dir(data_dir_);
  absl::StatusOr<std::unique_ptr<ShardServer>> restarted = ShardServer::Start(config);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string((*restarted)->port()),
                                           grpc::InsecureChannelCredentials());
  const auto control = v1::ShardControl::NewStub(channel);
  ControlCall coordinator(*control);
  EXPECT_EQ(coordinator.Ask(PromiseOf(1)).state().data_loss(), "");
}

TEST_F(ShardServerTest, WritesThePortItGot) {
  v1::ShardConfig config = Config();
  config.set_port_file(data_dir_ + "_port");
  const absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Start(config);
  ASSERT_TRUE(server.ok()) << server.status();
  int port = 0;
  std::ifstream(config.port_file()) >> port;
  EXPECT_EQ(port, (*server)->port());
  EXPECT_GT(port, 0);
}

TEST_F(ShardServerTest, RefusesAConfigurationItCannotServe) {
  v1::ShardConfig config = Config();
  config.clear_data_dir();
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "data_dir is empty");
  config = Config();
  config.set_listen("nowhere");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "listen is \"nowhere\"");
  config = Config();
  config.set_staging_bytes(1000);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "staging_bytes is 1000");
  config = Config();
  config.set_threads(2);
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "threads is 2");
  config = Config();
  config.set_gemm("none");
  ExpectRefused(config, absl::StatusCode::kInvalidArgument, "none");
  config = Config();
  config.set_backend("missing");
  ExpectRefused(config, absl::StatusCode::kNotFound, "missing");
  config = Config();
  config.set_listen("0.0.0.0:0");
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition, "0.0.0.0");
}

TEST_F(ShardServerTest, RefusesAPortInUse) {
  v1::ShardConfig config = Config();
  config.set_listen("127.0.0.1:" + std::to_string(server_->port()));
  ExpectRefused(config, absl::StatusCode::kFailedPrecondition,
                "cannot listen on " + config.listen());
}

TEST_F(ShardServerTest, ShutsDownTwiceWithoutHarm) {
  server_->Shutdown();
  server_->Shutdown();
}

}  // namespace
}  // namespace kaon::shard
