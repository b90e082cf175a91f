#include "server/admin_cli/servers/ask_servers.h"

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

class FakeProcess : public v1::ServerProcess::Service {
 public:
  grpc::Status GetProcess(grpc::ServerContext*, const v1::GetProcessRequest*,
                          v1::GetProcessResponse* response) override {
    response->set_pushed_bytes(9);
    return grpc::Status::OK;
  }
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*,
                         v1::GetConfigResponse* response) override {
    response->set_config("threads: 2\n");
    return grpc::Status::OK;
  }
  grpc::Status SetLogLevel(grpc::ServerContext*, const v1::SetLogLevelRequest* request,
                           v1::SetLogLevelResponse* response) override {
    levels.push_back(request->level());
    response->set_previous("info");
    return grpc::Status::OK;
  }

  std::vector<std::string> levels;
};

// A server that is coordinator and shard 0; nobody answers as shard 1.
class AskServersTest : public testing::Test {
 protected:
  AskServersTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&process_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    options_.endpoints = {address_};
    options_.log_level = "debug";
    status_.add_shards()->set_address(address_);
  }
  void AddShardThatIsAway() {
    v1::ShardStatus& away = *status_.add_shards();
    away.set_shard(1);
    away.set_address("127.0.0.1:1");
  }

  FakeProcess process_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  Options options_;
  v1::GetStatusResponse status_;
};

TEST_F(AskServersTest, EveryServerGetsTheLevel) {
  const ServerReport report = SetLogLevels(options_, status_);
  EXPECT_EQ(AllAnswered(report), absl::OkStatus());
  EXPECT_EQ(process_.levels, (std::vector<std::string>{"debug", "debug"}));
  EXPECT_EQ(ServersJson(report)["servers"][1].dump(),
            "{\"server\":\"shard 0\",\"address\":\"" + address_ +
                "\",\"problem\":\"\",\"log_level\":\"debug\",\"previous\":\"info\"}");
  EXPECT_THAT(LogLevelsText(report), HasSubstr("debug  info    -"));
}

TEST_F(AskServersTest, ConfigurationsAreNamed) {
  EXPECT_EQ(
      ConfigsText(GetConfigs(options_, status_)),
      "# coordinator " + address_ + "\nthreads: 2\n\n# shard 0 " + address_ + "\nthreads: 2\n");
}

TEST_F(AskServersTest, AServerThatIsAwayIsARowAndAnError) {
  AddShardThatIsAway();
  options_.timeout_seconds = 5;
  const ServerReport report = SetLogLevels(options_, status_);
  EXPECT_EQ(process_.levels.size(), 2u);
  EXPECT_EQ(AllAnswered(report).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(AllAnswered(report).message()), HasSubstr("shard 1 127.0.0.1:1: "));
  EXPECT_THAT(LogLevelsText(report), HasSubstr("shard 1      127.0.0.1:1"));
  EXPECT_THAT(ConfigsText(GetConfigs(options_, status_)), HasSubstr("# shard 1 127.0.0.1:1\n-\n"));
}

TEST_F(AskServersTest, UnknownShardsAreAnError) {
  const ServerReport report = SetLogLevels(options_, absl::PermissionDeniedError("no"));
  EXPECT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(AllAnswered(report), absl::PermissionDeniedError("shards cannot be listed: no"));
}

TEST_F(AskServersTest, OneShardAlone) {
  options_.endpoints = {"127.0.0.1:1"};
  options_.shard = address_;
  EXPECT_EQ(AllAnswered(SetLogLevels(options_, v1::GetStatusResponse())), absl::OkStatus());
  EXPECT_EQ(process_.levels.size(), 1u);
}

TEST_F(AskServersTest, AProcessTellsItsTraffic) {
  EXPECT_EQ(GetProcess(options_, address_, proto::Role::kShard)->pushed_bytes(), 9u);
  options_.timeout_seconds = 5;
  EXPECT_THAT(
      std::string(GetProcess(options_, "127.0.0.1:1", proto::Role::kShard).status().message()),
      HasSubstr("127.0.0.1:1: "));
}

}  // namespace
}  // namespace kaon::admin_cli
