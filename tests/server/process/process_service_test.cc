#include "server/process/process_service.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>

#include "kaon/v1/config.pb.h"
#include "server/config/server_log.h"
#include "tests/testing/captured_log.h"

namespace kaon::process {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProcessServiceTest : public ::testing::Test {
 protected:
  ProcessServiceTest() {
    config_.set_listen("127.0.0.1:7");
    config_.set_metrics_token_file("/secret/token");
    config_.mutable_tls()->set_ca_file("/tls/ca.crt");
    config_.mutable_tls()->set_private_key_file("/secret/key");
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::ServerProcess::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                           grpc::InsecureChannelCredentials()));
  }
  ~ProcessServiceTest() override { EXPECT_EQ(config::SetLogLevel("info"), absl::OkStatus()); }

  grpc::Status SetLevel(const std::string& level) {
    v1::SetLogLevelRequest request;
    request.set_level(level);
    grpc::ClientContext context;
    return stub_->SetLogLevel(&context, request, &set_);
  }

  v1::ShardConfig config_;
  monitor::EventCounts counts_;
  ProcessService service_{"kaon-shard", config_, counts_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::ServerProcess::Stub> stub_;
  v1::SetLogLevelResponse set_;
};

TEST_F(ProcessServiceTest, TellsItsTrafficAndMemory) {
  counts_.AddBytes(monitor::Transfer::kPushed, 30);
  counts_.AddBytes(monitor::Transfer::kPulled, 40);
  grpc::ClientContext context;
  v1::GetProcessResponse process;
  ASSERT_TRUE(stub_->GetProcess(&context, v1::GetProcessRequest(), &process).ok());
  EXPECT_EQ(process.program(), "kaon-shard");
  EXPECT_EQ(process.pushed_bytes(), 30u);
  EXPECT_EQ(process.pulled_bytes(), 40u);
  EXPECT_GT(process.resident_bytes(), 1u << 20);
  EXPECT_EQ(process.log_level(), "info");
}

TEST_F(ProcessServiceTest, ConfigurationHasNoSecret) {
  grpc::ClientContext context;
  v1::GetConfigResponse config;
  ASSERT_TRUE(stub_->GetConfig(&context, v1::GetConfigRequest(), &config).ok());
  EXPECT_THAT(config.config(), HasSubstr("listen: \"127.0.0.1:7\""));
  EXPECT_THAT(config.config(), HasSubstr("ca_file: \"/tls/ca.crt\""));
  EXPECT_THAT(config.config(), HasSubstr("private_key_file: \"(redacted)\""));
  EXPECT_THAT(config.config(), HasSubstr("metrics_token_file: \"(redacted)\""));
  EXPECT_THAT(config.config(), Not(HasSubstr("/secret")));
}

TEST_F(ProcessServiceTest, EachLevelIsSetAndAudited) {
  std::string before = "info";
  for (const char* level : {"error", "warning", "error", "debug"}) {
    const testing::CapturedLog log;
    ASSERT_TRUE(SetLevel(level).ok()) << level;
    EXPECT_EQ(set_.previous(), before);
    EXPECT_EQ(config::LogLevel(), level);
    EXPECT_THAT(log.text(), HasSubstr(std::string("SetLogLevel ") + level + ": OK"));
    before = level;
  }
  EXPECT_EQ(counts_.Happened().front().name(), "admin_act");
  EXPECT_EQ(counts_.Happened().front().count(), 4u);
}

TEST_F(ProcessServiceTest, RefusesALevelThatIsNone) {
  const testing::CapturedLog log;
  for (const char* level : {"", "loud"}) {
    EXPECT_EQ(SetLevel(level).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << level;
  }
  EXPECT_EQ(config::LogLevel(), "info");
  EXPECT_THAT(log.text(), HasSubstr("SetLogLevel loud: INVALID_ARGUMENT"));
  EXPECT_EQ(counts_.Happened().front().name(), "admin_refused.invalid_argument");
}

}  // namespace
}  // namespace kaon::process
