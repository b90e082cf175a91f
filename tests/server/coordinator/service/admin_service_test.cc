#include "server/coordinator/service/admin_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/server/coordinator/machine/test_job.h"
#include "tests/server/coordinator/server_fixture.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

using AdminServiceTest = ServerFixture;

TEST_F(AdminServiceTest, StatusShowsHolderShardsAndWorkers) {
  Train();
  v1::BeginStepResponse begun;
  ASSERT_TRUE(Begin(BeginRequest(1, 1), &begun).ok());
  const v1::GetStatusResponse status = Status();
  EXPECT_TRUE(status.holder());
  EXPECT_EQ(status.holder_address(), absl::StrCat("127.0.0.1:", server_->port()));
  EXPECT_EQ(status.job(), "tiny");
  EXPECT_EQ(status.phase(), "step 1: waiting for rank 0");
  ASSERT_EQ(status.shards_size(), 2);
  EXPECT_TRUE(status.shards(1).connected());
  EXPECT_EQ(status.shards(1).description().state().applied_position(), 2);
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.workers(0).begun_step(), 0);
  EXPECT_EQ(status.workers(1).begun_step(), 1);
}

TEST_F(AdminServiceTest, StatusNamesTheShardThatIsDown) {
  Train();
  shards_[1]->Stop();
  const v1::GetStatusResponse status = Status();
  EXPECT_TRUE(status.shards(0).connected());
  EXPECT_FALSE(status.shards(1).connected());
  EXPECT_FALSE(status.shards(1).problem().empty());
  EXPECT_EQ(status.job(), "tiny");
}

TEST_F(AdminServiceTest, DescribeJobOfNobodyIsNotFound) {
  v1::JobDescription job;
  const absl::Status status =
      Call(&v1::Admin::Stub::DescribeJob, *admin_, v1::DescribeJobRequest(), &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no job is registered"));
}

TEST_F(AdminServiceTest, DescribesTheOnlyJobWithItsPlacement) {
  Train();
  v1::JobDescription job;
  ASSERT_TRUE(Call(&v1::Admin::Stub::DescribeJob, *admin_, v1::DescribeJobRequest(), &job).ok());
  EXPECT_EQ(job.definition().name(), "tiny");
  EXPECT_EQ(job.placement().parameters_size(), 5);
  EXPECT_TRUE(job.weights_loaded());
  EXPECT_EQ(job.shard_addresses(0), shards_[0]->address());
}

TEST_F(AdminServiceTest, ListsParametersPageByPage) {
  Train();
  v1::ListParametersRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  do {
    v1::ListParametersResponse page;
    ASSERT_TRUE(Call(&v1::Admin::Stub::ListParameters, *admin_, request, &page).ok());
    for (const v1::ParameterRow& row : page.parameters()) {
      names.push_back(row.spec().name());
      EXPECT_EQ(row.state().parameter_id(), row.placement().parameter_id());
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(names,
              ::testing::ElementsAre("layer0.w", "layer0.b", "layer1.w", "layer1.b", "table"));
}

TEST_F(AdminServiceTest, ListsWhatTheRegexMatchesWithRuleAndExemption) {
  Train();
  v1::ListParametersRequest request;
  request.set_name_regex("^layer1");
  v1::ListParametersResponse page;
  ASSERT_TRUE(Call(&v1::Admin::Stub::ListParameters, *admin_, request, &page).ok());
  ASSERT_EQ(page.parameters_size(), 2);
  EXPECT_EQ(page.parameters(0).rule(), v1::RULE_MUON);
  EXPECT_TRUE(page.parameters(0).clip_exempt());
  EXPECT_EQ(page.parameters(1).rule(), v1::RULE_ADAMW);
  EXPECT_FALSE(page.parameters(1).clip_exempt());
}

TEST_F(AdminServiceTest, StepHistoryIsTheNewestStepsNewestLast) {
  Train(1);
  for (uint64_t step = 1; step <= 5; ++step) {
    v1::BeginStepResponse begun;
    ASSERT_TRUE(Begin(BeginRequest(0, step), &begun).ok());
    std::vector<v1::StepEvent> events;
    ASSERT_TRUE(Await(AwaitRequest(0, step), &events).ok());
  }
  v1::StepHistoryRequest request;
  v1::StepHistoryResponse history;
  ASSERT_TRUE(Call(&v1::Admin::Stub::StepHistory, *admin_, request, &history).ok());
  // Steps 1 .. 5 and the initial weights; step 5 may not be applied by the newest shard yet.
  ASSERT_GE(history.records_size(), 5);
  EXPECT_EQ(history.records(0).plan().step().kind(), v1::STEP_KIND_LOAD_WEIGHTS);
  EXPECT_EQ(history.records(4).plan().step().step(), 4);
  request.set_limit(2);
  ASSERT_TRUE(Call(&v1::Admin::Stub::StepHistory, *admin_, request, &history).ok());
  EXPECT_EQ(history.records_size(), 2);
}

TEST_F(AdminServiceTest, ADeletionWhoseAnswerWasLostDoesNotDeleteTheNextJob) {
  Train();
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&v1::Admin::Stub::ListJobs, *admin_, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).job(), "tiny");
  EXPECT_EQ(jobs.jobs(0).parameters(), 5u);
  EXPECT_EQ(jobs.jobs(0).elements(), 8 * 4 + 8 + 4 * 8 + 4 + 3);
  v1::DeleteJobRequest request;
  request.set_job("tiny");
  request.set_timeline(jobs.jobs(0).timeline());
  request.set_request_id(7);
  v1::DeleteJobResponse deleted;
  ASSERT_TRUE(Call(&v1::Admin::Stub::DeleteJob, *admin_, request, &deleted).ok());
  EXPECT_EQ(deleted.position(), 3u);
  EXPECT_EQ(Counted()["job_deletion"], 1u);
  // It never reached the caller.
  ReplaceCoordinator();
  ASSERT_TRUE(Call(&v1::Admin::Stub::ListJobs, *admin_, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 0);
  ASSERT_TRUE(Call(&v1::Admin::Stub::DeleteJob, *admin_, request, &deleted).ok());
  EXPECT_EQ(deleted.position(), 3u);
  ASSERT_TRUE(Register(TestJob()).ok());
  ASSERT_TRUE(Call(&v1::Admin::Stub::DeleteJob, *admin_, request, &deleted).ok());
  EXPECT_EQ(deleted.position(), 3u);
  request.set_request_id(8);
  EXPECT_EQ(Call(&v1::Admin::Stub::DeleteJob, *admin_, request, &deleted).code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Call(&v1::Admin::Stub::ListJobs, *admin_, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).timeline(), 2u);
  // The steps of the deleted job are not its own.
  v1::StepHistoryResponse history;
  ASSERT_TRUE(
      Call(&v1::Admin::Stub::StepHistory, *admin_, v1::StepHistoryRequest(), &history).ok());
  EXPECT_EQ(history.records_size(), 0);
}

// 2.2: "so a retry after a takeover is not applied twice".
TEST_F(AdminServiceTest, AChangeWhoseAnswerWasLostIsAnsweredByTheNextCoordinator) {
  Train();
  v1::SetGroupRequest request;
  request.set_job("tiny");
  request.set_group("adamw");
  request.add_settings()->set_field("lr");
  request.mutable_settings(0)->set_value("0.5");
  request.set_expected_revision(1);
  request.set_request_id(7);
  v1::SetGroupResponse first;
  ASSERT_TRUE(Call(&v1::Admin::Stub::SetGroup, *admin_, request, &first).ok());
  EXPECT_EQ(first.config_revision(), 3u);
  // It never reached the caller.
  ReplaceCoordinator();
  v1::SetGroupRequest later = request;
  later.set_expected_revision(3);
  later.set_request_id(8);
  later.mutable_settings(0)->set_value("0.25");
  v1::SetGroupResponse changed;
  ASSERT_TRUE(Call(&v1::Admin::Stub::SetGroup, *admin_, later, &changed).ok());
  v1::SetGroupResponse again;
  ASSERT_TRUE(Call(&v1::Admin::Stub::SetGroup, *admin_, request, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
  // Other requests, and requests without an id, are compared with the revision as usual.
  for (uint64_t other : {9, 0}) {
    request.set_request_id(other);
    EXPECT_EQ(Call(&v1::Admin::Stub::SetGroup, *admin_, request, &again).code(),
              absl::StatusCode::kAborted);
  }
  EXPECT_EQ(shards_[0]->state().applied_position(), 4u);
  EXPECT_EQ(shards_[0]->state().registration().definition().groups(1).lr(), 0.25);
  std::map<std::string, uint64_t> counted = Counted();
  EXPECT_EQ(counted["admin_act"], 2u);
  EXPECT_EQ(counted["admin_refused.aborted"], 2u);
  EXPECT_EQ(counted["group_change"], 1u);
}

TEST_F(AdminServiceTest, RefusesToDrainAShardThatWouldLoseItsStateOrCannotWriteIt) {
  Train();
  const auto refusal = [this](uint32_t shard) {
    v1::DrainShardRequest request;
    request.set_shard(shard);
    v1::DrainShardResponse response;
    return Call(&v1::Admin::Stub::DrainShard, *admin_, request, &response);
  };
  EXPECT_EQ(refusal(2), absl::NotFoundError("shard 2: the shards are 0 .. 1"));
  EXPECT_EQ(refusal(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refusal(1).message(), HasSubstr("must have journal"));
  shards_[1]->set_read_only("/data/journal-1: No space left on device");
  EXPECT_EQ(refusal(1),
            absl::ResourceExhaustedError("shard 1: /data/journal-1: No space left on device"));
  std::map<std::string, uint64_t> counted = Counted();
  EXPECT_EQ(counted["admin_refused.not_found"], 1u);
  EXPECT_EQ(counted["admin_refused.failed_precondition"], 2u);
  EXPECT_EQ(counted["admin_refused.resource_exhausted"], 1u);
}

TEST_F(AdminServiceTest, StatusShowsWhatTheCoordinatorHasCounted) {
  Train();
  std::map<std::string, uint64_t> counted = Counted();
  EXPECT_EQ(counted["worker_joined"], 2u);
  EXPECT_GE(counted["takeover"], 1u);
  EXPECT_EQ(counted.count("rollback"), 0u);
}

TEST_F(AdminServiceTest, AsksTheShardThatHoldsAParameter) {
  Train();
  v1::JobDescription job;
  ASSERT_TRUE(Call(&v1::Admin::Stub::DescribeJob, *admin_, v1::DescribeJobRequest(), &job).ok());
  for (int id = 0; id < job.definition().parameters_size(); ++id) {
    v1::GetParameterDiagnosticsRequest request;
    request.set_parameter(job.definition().parameters(id).name());
    v1::GetParameterDiagnosticsResponse response;
    ASSERT_TRUE(Call(&v1::Admin::Stub::GetParameterDiagnostics, *admin_, request, &response).ok());
    EXPECT_EQ(response.diagnostics().parameter_id(), id);
    EXPECT_EQ(response.diagnostics().backend(),
              absl::StrCat("shard ", job.placement().parameters(id).shard()));
    EXPECT_EQ(response.placement().SerializeAsString(),
              job.placement().parameters(id).SerializeAsString());
  }
  v1::GetParameterStatsRequest request;
  request.set_job("tiny");
  request.set_parameter("table");
  v1::GetParameterStatsResponse response;
  ASSERT_TRUE(Call(&v1::Admin::Stub::GetParameterStats, *admin_, request, &response).ok());
  EXPECT_EQ(response.stats().parameter_id(), 4);
  v1::GetParameterHistoryRequest history_request;
  history_request.set_parameter("table");
  v1::GetParameterHistoryResponse history;
  ASSERT_TRUE(Call(&v1::Admin::Stub::GetParameterHistory, *admin_, history_request, &history).ok());
  EXPECT_EQ(history.history().parameter_id(), 4u);
  EXPECT_EQ(history.history().samples_size(), 1);
}

TEST_F(AdminServiceTest, ReadsASliceWhereTheParameterIsAndCountsIt) {
  Train();
  v1::ReadSliceRequest request;
  request.set_parameter("table");
  request.set_tensor("exp_avg");
  request.set_offset(7);
  request.set_count(3);
  v1::ReadSliceResponse response;
  ASSERT_TRUE(Call(&v1::Admin::Stub::ReadSlice, *admin_, request, &response).ok());
  EXPECT_EQ(response.slice().values(), "tiny 4 exp_avg 7 3");
  EXPECT_EQ(response.placement().parameter_id(), 4u);
  request.set_parameter("Table");
  EXPECT_EQ(Call(&v1::Admin::Stub::ReadSlice, *admin_, request, &response).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(AdminServiceTest, RefusesAParameterThatDoesNotExist) {
  v1::GetParameterStatsRequest request;
  v1::GetParameterStatsResponse response;
  const auto refusal = [&] {
    return Call(&v1::Admin::Stub::GetParameterStats, *admin_, request, &response);
  };
  request.set_parameter("table");
  EXPECT_EQ(refusal().code(), absl::StatusCode::kNotFound);
  Train();
  const std::string before = Visible();
  request.set_parameter("Table");
  EXPECT_EQ(refusal().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refusal().message(), HasSubstr("\"Table\""));
  EXPECT_THAT(refusal().message(), HasSubstr("did you mean \"table\"?"));
  request.clear_parameter();
  EXPECT_EQ(refusal().code(), absl::StatusCode::kInvalidArgument);
  request.set_job("other");
  EXPECT_THAT(refusal().message(), HasSubstr("the job here is \"tiny\""));
  EXPECT_EQ(Visible(), before);
}

TEST_F(AdminServiceTest, NamesTheShardOfAParameterThatDoesNotAnswer) {
  Train();
  v1::JobDescription job;
  ASSERT_TRUE(Call(&v1::Admin::Stub::DescribeJob, *admin_, v1::DescribeJobRequest(), &job).ok());
  shards_[1]->Stop();
  for (int id = 0; id < job.definition().parameters_size(); ++id) {
    v1::GetParameterStatsRequest request;
    request.set_parameter(job.definition().parameters(id).name());
    v1::GetParameterStatsResponse response;
    const absl::Status status =
        Call(&v1::Admin::Stub::GetParameterStats, *admin_, request, &response);
    if (job.placement().parameters(id).shard() == 0) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(status.message(), HasSubstr("shard 1 at " + shards_[1]->address()));
    }
  }
}

}  // namespace
}  // namespace kaon::coordinator
