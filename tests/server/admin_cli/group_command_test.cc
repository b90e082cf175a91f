#include "server/admin_cli/group_command.h"

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kaon/v1/admin.grpc.pb.h"

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

// At revision 7; sends callers to `holder` if it is set.
class FakeAdmin : public v1::Admin::Service {
 public:
  grpc::Status DescribeJob(grpc::ServerContext*, const v1::DescribeJobRequest*,
                           v1::JobDescription* response) override {
    if (away) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
    response->set_config_revision(7);
    return grpc::Status::OK;
  }
  grpc::Status SetGroup(grpc::ServerContext* context, const v1::SetGroupRequest* request,
                        v1::SetGroupResponse* response) override {
    ids.push_back(request->request_id());
    if (!holder.empty()) {
      context->AddTrailingMetadata("kaon-holder", holder);
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "not the holder");
    }
    if (request->expected_revision() != 7) {
      return grpc::Status(grpc::StatusCode::ABORTED, "config_revision is 7");
    }
    newest = *request;
    response->set_config_revision(8);
    response->mutable_group()->set_name(request->group());
    return grpc::Status::OK;
  }

  bool away = false;
  std::string holder;
  v1::SetGroupRequest newest;
  // Ids of all requests, in order.
  std::vector<uint64_t> ids;
};

struct Served {
  Served() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&admin);
    server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
  }

  FakeAdmin admin;
  std::unique_ptr<grpc::Server> server;
  std::string address;
};

Options SetRate(const std::string& endpoint) {
  Options options;
  options.endpoints = {endpoint};
  options.job = "tiny";
  options.group = "scalars";
  options.settings = {"lr=0.5", "adamw.eps=1e-6"};
  return options;
}

TEST(GroupCommandTest, ReadsTheRevisionAndComparesWithIt) {
  Served served;
  const Options options = SetRate(served.address);
  const auto response = SetGroup(AdminCalls(options), options);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->config_revision(), 8u);
  EXPECT_NE(served.admin.newest.request_id(), 0u);
  served.admin.newest.clear_request_id();
  EXPECT_EQ(served.admin.newest.ShortDebugString(),
            "job: \"tiny\" group: \"scalars\" settings { field: \"lr\" value: \"0.5\" } "
            "settings { field: \"adamw.eps\" value: \"1e-6\" } expected_revision: 7");
}

// `kaonctl job set`: of the empty group.
TEST(GroupCommandTest, PrintsTheWorkersOfTheJob) {
  v1::SetGroupResponse response;
  response.set_config_revision(8);
  response.mutable_workers()->set_world_size(4);
  response.mutable_workers()->set_worker_loss(v1::WORKER_LOSS_POLICY_SHRINK);
  response.mutable_workers()->set_worker_loss_seconds(30);
  response.mutable_workers()->set_step_seconds(90);
  response.mutable_workers()->set_paused(true);
  EXPECT_EQ(GroupJson(response).dump(),
            "{\"config_revision\":8,\"job\":{\"world_size\":4,\"worker_loss\":\"shrink\","
            "\"worker_loss_seconds\":30.0,\"step_seconds\":90.0,\"paused\":true}}");
  EXPECT_THAT(GroupText(response), HasSubstr("world_size                      4\n"));
}

TEST(GroupCommandTest, ARevisionThatIsGivenIsNotReadAgain) {
  Served served;
  Options options = SetRate(served.address);
  options.expected_revision = 6;
  EXPECT_EQ(SetGroup(AdminCalls(options), options).status().code(), absl::StatusCode::kAborted);
}

TEST(GroupCommandTest, GoesToTheHolder) {
  Served holder;
  Served standby;
  standby.admin.holder = holder.address;
  const Options options = SetRate(standby.address);
  EXPECT_TRUE(SetGroup(AdminCalls(options), options).ok());
  EXPECT_EQ(holder.admin.newest.group(), "scalars");
}

// The holder is gone, and the standby does not know it yet.
TEST(GroupCommandTest, AsksAgainWithTheSameIdWhileNobodyAnswers) {
  Served served;
  served.admin.holder = "127.0.0.1:1";
  Options options = SetRate(served.address);
  options.expected_revision = 7;
  int pauses = 0;
  const AdminCalls calls(options, [&](absl::Duration delay) {
    EXPECT_GE(delay, absl::Milliseconds(25));
    EXPECT_LE(delay, absl::Seconds(1));
    if (++pauses == 3) served.admin.holder.clear();
  });
  const auto response = SetGroup(calls, options);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(pauses, 3);
  ASSERT_EQ(served.admin.ids.size(), 4u);
  EXPECT_EQ(std::set<uint64_t>(served.admin.ids.begin(), served.admin.ids.end()).size(), 1u);
  // Another command is another request.
  ASSERT_TRUE(SetGroup(calls, options).ok());
  EXPECT_NE(served.admin.ids.back(), served.admin.ids.front());
}

TEST(GroupCommandTest, ReadsTheRevisionAgainWhileNobodyAnswers) {
  Served served;
  served.admin.away = true;
  const Options options = SetRate(served.address);
  int pauses = 0;
  const AdminCalls calls(options, [&](absl::Duration) {
    if (++pauses == 3) served.admin.away = false;
  });
  const auto response = SetGroup(calls, options);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(pauses, 3);
  EXPECT_EQ(served.admin.newest.expected_revision(), 7u);
}

TEST(GroupCommandTest, GivesUpWhenItsTimeIsOver) {
  for (const std::optional<uint64_t> revision : {std::optional<uint64_t>(7), {}}) {
    Options options = SetRate("127.0.0.1:1");
    options.expected_revision = revision;
    options.timeout_seconds = 0.2;
    const AdminCalls calls(options);
    EXPECT_EQ(SetGroup(calls, options).status().code(), absl::StatusCode::kUnavailable);
  }
}

// However much of it went by until the revision was read.
TEST(GroupCommandTest, ReadsAndChangesInTheSameTime) {
  Served served;
  served.admin.away = true;
  Options options = SetRate(served.address);
  options.timeout_seconds = 0.2;
  const AdminCalls calls(options, [&](absl::Duration) {
    PauseFor(absl::Seconds(options.timeout_seconds));
    served.admin.away = false;
  });
  EXPECT_FALSE(SetGroup(calls, options).ok());
  EXPECT_TRUE(served.admin.ids.empty());
}

TEST(GroupCommandTest, PrintsTheRevisionAndEveryFieldByItsPath) {
  v1::SetGroupResponse response;
  response.set_config_revision(8);
  v1::ParameterGroup& group = *response.mutable_group();
  group.set_name("hidden");
  group.set_rule(v1::RULE_MUON);
  group.set_lr(0.02);
  group.mutable_muon()->set_nesterov(false);
  group.mutable_muon()->mutable_newton_schulz()->add_gram_restarts(2);
  group.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_COSINE);
  const Json json = GroupJson(response);
  EXPECT_EQ(json["config_revision"], 8);
  EXPECT_EQ(json["group"]["rule"], "muon");
  EXPECT_EQ(json["group"]["lr"], 0.02);
  EXPECT_EQ(json["group"]["muon"]["nesterov"], false);
  EXPECT_EQ(json["group"]["muon"]["newton_schulz"]["gram_restarts"], Json::array({2}));
  EXPECT_FALSE(json["group"].contains("adamw"));
  const std::string text = GroupText(response);
  EXPECT_THAT(text, HasSubstr("config_revision                 8\n"));
  EXPECT_THAT(text, HasSubstr("lr                              0.02\n"));
  EXPECT_THAT(text, HasSubstr("muon.nesterov                   false\n"));
  EXPECT_THAT(text, HasSubstr("schedule.kind                   cosine\n"));
}

}  // namespace
}  // namespace kaon::admin_cli
