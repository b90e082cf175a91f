#include "server/admin_cli/admin_calls.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kaon/v1/admin.grpc.pb.h"

namespace kaon::admin_cli {
namespace {

// A coordinator with two pages of parameters that names one shard. No server is there, unless a
// test sets its address.
class FakeAdmin : public v1::Admin::Service {
 public:
  FakeAdmin() { shard.set_address("127.0.0.1:1"); }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    if (!refusal.ok()) return refusal;
    response->set_phase(phase);
    response->set_holder(holder.empty());
    response->set_holder_address(holder);
    response->set_job(job);
    *response->add_shards() = shard;
    return grpc::Status::OK;
  }
  grpc::Status DescribeJob(grpc::ServerContext*, const v1::DescribeJobRequest* request,
                           v1::JobDescription*) override {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job '" + request->job() + "'");
  }
  grpc::Status ListParameters(grpc::ServerContext*, const v1::ListParametersRequest* request,
                              v1::ListParametersResponse* response) override {
    const bool first = request->page_token().empty();
    response->add_parameters()->mutable_spec()->set_name((first ? "first " : "second ") +
                                                         request->name_regex());
    if (first) response->set_next_page_token("more");
    return grpc::Status::OK;
  }
  grpc::Status StepHistory(grpc::ServerContext*, const v1::StepHistoryRequest* request,
                           v1::StepHistoryResponse* response) override {
    for (uint32_t i = 0; i < request->limit(); ++i) response->add_records();
    return grpc::Status::OK;
  }
  grpc::Status GetParameterStats(grpc::ServerContext*, const v1::GetParameterStatsRequest* request,
                                 v1::GetParameterStatsResponse* response) override {
    response->mutable_placement()->set_group(request->job() + "/" + request->parameter());
    return grpc::Status::OK;
  }
  grpc::Status GetParameterDiagnostics(grpc::ServerContext*,
                                       const v1::GetParameterDiagnosticsRequest* request,
                                       v1::GetParameterDiagnosticsResponse*) override {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no " + request->parameter());
  }

  // Set before the calls.
  grpc::Status refusal;
  std::string phase = "idle";
  std::string job;
  // Empty = this coordinator holds the shards.
  std::string holder;
  v1::ShardStatus shard;
};

class AdminCallsTest : public ::testing::Test {
 protected:
  AdminCallsTest() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    server_->GetHealthCheckService()->SetServingStatus("kaon.v1.Coordinator", true);
    options_.endpoints = {"127.0.0.1:" + std::to_string(port)};
  }

  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
  Options options_;
};

TEST_F(AdminCallsTest, AsksTheNextEndpointWhenOneCannotBeReached) {
  options_.endpoints.insert(options_.endpoints.begin(), "127.0.0.1:1");
  const auto status = AdminCalls(options_).GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->phase(), "idle");
}

TEST_F(AdminCallsTest, NamesTheEndpointWhenNoneCanBeReached) {
  options_.endpoints = {"127.0.0.1:1"};
  const auto status = AdminCalls(options_).GetStatus();
  EXPECT_EQ(status.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.status().message().find("coordinator 127.0.0.1:1"), absl::string_view::npos)
      << status.status();
}

TEST_F(AdminCallsTest, DoesNotAskAnotherEndpointAfterARefusal) {
  options_.endpoints.push_back("127.0.0.1:1");
  options_.job = "run";
  const auto job = AdminCalls(options_).DescribeJob();
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(job.status().message(), "no job 'run'");
}

TEST_F(AdminCallsTest, ReadsAllPagesWithTheFilter) {
  options_.filter = "w.*";
  const auto rows = AdminCalls(options_).ListParameters();
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ((*rows)[0].spec().name(), "first w.*");
  EXPECT_EQ((*rows)[1].spec().name(), "second w.*");
}

TEST_F(AdminCallsTest, AsksForSoManyStepsAsWanted) {
  options_.limit = 7;
  const auto history = AdminCalls(options_).StepHistory();
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(history->records_size(), 7);
}

TEST_F(AdminCallsTest, AsksForTheParameterThatIsNamed) {
  options_.job = "run";
  options_.parameter = "wte";
  const auto stats = AdminCalls(options_).GetParameterStats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->name, "wte");
  EXPECT_EQ(stats->answer.placement().group(), "run/wte");
  EXPECT_EQ(AdminCalls(options_).GetParameterDiagnostics().status().message(), "no wte");
}

TEST_F(AdminCallsTest, HealthHasARowForEveryServerReachableOrNot) {
  const std::vector<HealthRow> rows = AdminCalls(options_).CheckHealth().rows;
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].role, "coordinator");
  EXPECT_TRUE(rows[0].serving) << rows[0].status;
  EXPECT_EQ(rows[1].role, "shard");
  EXPECT_FALSE(rows[1].serving);
  EXPECT_EQ(rows[1].status, "UNAVAILABLE");
  EXPECT_EQ(rows[0].reason, "");
  EXPECT_NE(rows[1].reason, "");
}

TEST_F(AdminCallsTest, ServerThatDoesNotServeIsNotHealthy) {
  server_->GetHealthCheckService()->SetServingStatus("kaon.v1.Coordinator", false);
  const std::vector<HealthRow> rows = AdminCalls(options_).CheckHealth().rows;
  EXPECT_FALSE(rows[0].serving);
  EXPECT_EQ(rows[0].status, "NOT_SERVING");
}

// Health reports the reason why a server does not serve (P18).
TEST_F(AdminCallsTest, HealthSaysWhyAServerDoesNotServe) {
  server_->GetHealthCheckService()->SetServingStatus("kaon.v1.Coordinator", false);
  server_->GetHealthCheckService()->SetServingStatus("kaon.v1.ShardData", false);
  admin_.phase = "stopped: DATA_LOSS: shard 0";
  admin_.shard.set_address(options_.endpoints[0]);
  v1::DescribeShardResponse& facts = *admin_.shard.mutable_description();
  facts.mutable_journal()->set_read_only_reason("/data: No space left on device");
  std::vector<HealthRow> rows = AdminCalls(options_).CheckHealth().rows;
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].reason, "stopped: DATA_LOSS: shard 0");
  EXPECT_EQ(rows[1].status, "NOT_SERVING");
  EXPECT_EQ(rows[1].reason, "read-only: /data: No space left on device");
  facts.mutable_state()->set_data_loss("its journal is damaged");
  EXPECT_EQ(AdminCalls(options_).CheckHealth().rows[1].reason, "its journal is damaged");
  // The coordinator may not reach one that kaonctl does.
  admin_.shard.clear_description();
  admin_.shard.set_problem("no route");
  EXPECT_EQ(AdminCalls(options_).CheckHealth().rows[1].reason, "no route");
}

// A dead shard is invisible to a role that may not list the shards.
TEST_F(AdminCallsTest, HealthThatCannotListTheShardsFailsAndSaysSo) {
  admin_.refusal = {grpc::StatusCode::PERMISSION_DENIED, "role worker may not call GetStatus"};
  const HealthReport health = AdminCalls(options_).CheckHealth();
  ASSERT_EQ(health.rows.size(), 1);
  EXPECT_TRUE(health.rows[0].serving);
  EXPECT_EQ(AllServe(health).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(AllServe(health).message().find("role worker may not call GetStatus"),
            absl::string_view::npos);
}

// A standby coordinator knows no worker, which is not the same as no worker.
TEST_F(AdminCallsTest, WorkersAreAskedOfTheHolderAlone) {
  EXPECT_TRUE(AdminCalls(options_).GetHolderStatus()->holder());
  admin_.holder = "127.0.0.1:1";
  const absl::Status elsewhere = AdminCalls(options_).GetHolderStatus().status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(elsewhere.message().find("coordinator 127.0.0.1:1"), absl::string_view::npos);
  admin_.holder = options_.endpoints[0];
  EXPECT_EQ(AdminCalls(options_).GetHolderStatus().status().message(),
            "no coordinator that holds the shards can be asked: idle");
}

TEST_F(AdminCallsTest, AShardThatDoesNotAnswerIsNotHealthy) {
  options_.shard = "127.0.0.1:1";
  const HealthReport health = AdminCalls(options_).CheckHealth();
  ASSERT_EQ(health.rows.size(), 1);
  EXPECT_EQ(health.rows[0].role, "shard");
  EXPECT_EQ(AllServe(health).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AdminCalls(options_).DescribeShard().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AdminCallsTest, StatusOfAnotherJobIsNotFound) {
  options_.job = "b";
  EXPECT_EQ(AdminCalls(options_).GetJobStatus().status().code(), absl::StatusCode::kUnavailable);
  admin_.shard.set_connected(true);
  EXPECT_EQ(AdminCalls(options_).GetJobStatus().status().message(),
            "job \"b\": no job is registered");
  admin_.job = "a";
  const absl::Status other = AdminCalls(options_).GetJobStatus().status();
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(other.message(), "job \"b\": the job here is \"a\"");
  options_.job = "a";
  EXPECT_TRUE(AdminCalls(options_).GetJobStatus().ok());
}

}  // namespace
}  // namespace kaon::admin_cli
