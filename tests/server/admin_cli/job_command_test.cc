#include "server/admin_cli/job_command.h"

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kaon/v1/admin.grpc.pb.h"

namespace kaon::admin_cli {
namespace {

using ::testing::HasSubstr;

// Has job tiny, in timeline 3.
class FakeAdmin : public v1::Admin::Service {
 public:
  grpc::Status DescribeJob(grpc::ServerContext*, const v1::DescribeJobRequest* request,
                           v1::JobDescription* response) override {
    if (request->job() != "tiny") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
    response->set_timeline(3);
    return grpc::Status::OK;
  }
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse* response) override {
    newest = *request;
    response->set_position(9);
    return grpc::Status::OK;
  }

  v1::DeleteJobRequest newest;
};

TEST(JobCommandTest, DeletesTheJobInTheTimelineThatItIsIn) {
  FakeAdmin admin;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&admin);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Options options;
  options.endpoints = {"127.0.0.1:" + std::to_string(port)};
  options.deleted_job = "tiny";
  const absl::StatusOr<DeletedJob> deleted = DeleteJob(AdminCalls(options), options);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(admin.newest.job(), "tiny");
  EXPECT_EQ(admin.newest.timeline(), 3u);
  EXPECT_NE(admin.newest.request_id(), 0u);
  EXPECT_EQ(DeletedJobJson(*deleted).dump(), "{\"deleted\":\"tiny\",\"position\":9}");
  EXPECT_THAT(DeletedJobText(*deleted), HasSubstr("deleted job tiny, at position 9"));
  options.deleted_job = "other";
  EXPECT_EQ(DeleteJob(AdminCalls(options), options).status().code(), absl::StatusCode::kNotFound);
}

TEST(JobCommandTest, PrintsNoRowWithoutAJob) {
  v1::ListJobsResponse response;
  EXPECT_EQ(JobListJson(response).dump(), "{\"jobs\":[]}");
  v1::JobRow& row = *response.add_jobs();
  row.set_job("tiny");
  row.set_timeline(2);
  row.set_applied_step(40);
  row.set_parameters(5);
  row.set_elements(79);
  row.set_workers(4);
  EXPECT_EQ(JobListJson(response)["jobs"][0].dump(),
            "{\"job\":\"tiny\",\"timeline\":2,\"applied_step\":40,\"parameters\":5,"
            "\"elements\":79,\"workers\":4,\"stopped_reason\":null}");
  EXPECT_THAT(JobListText(response), HasSubstr("tiny"));
}

}  // namespace
}  // namespace kaon::admin_cli
