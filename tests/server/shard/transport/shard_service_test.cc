#include "server/shard/transport/shard_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/captured_log.h"

namespace kaon::shard {
namespace {

using ::testing::HasSubstr;

class ShardServiceTest : public ServedShardTest {
 protected:
  grpc::Status History(const std::string& job, uint64_t from, uint32_t limit,
                       v1::ReadHistoryResponse* response) {
    v1::ReadHistoryRequest request;
    request.set_job(job);
    request.set_from_position(from);
    request.set_limit(limit);
    return control_->ReadHistory(WithDeadline().get(), request, response);
  }
  std::map<std::string, uint64_t> Counted() {
    std::map<std::string, uint64_t> counted;
    const v1::DescribeShardResponse described = Describe();
    for (const v1::EventCount& one : described.events()) counted[one.name()] = one.count();
    return counted;
  }
};

TEST_F(ShardServiceTest, DescribesWhatItHolds) {
  EXPECT_EQ(Describe().state().applied_position(), 0u);
  PlanStepOne();
  const v1::DescribeShardResponse response = Describe();
  EXPECT_EQ(response.state().applied_position(), 2u);
  EXPECT_EQ(response.parameters_size(), 3);
  EXPECT_EQ(response.capacity_bytes(), 64u << 20);
  EXPECT_GT(response.used_bytes(), 0u);
  EXPECT_EQ(response.backend(), "cpu/reference");
}

TEST_F(ShardServiceTest, ShowsWhatItHasCounted) {
  PlanStepOne();
  EXPECT_FALSE(Push({OpenRequest(0, 9)}).ok());
  EXPECT_FALSE(Push({FinishRequest()}).ok());
  EXPECT_FALSE(Pull(PullOf(9, {0})).ok());
  // A PREPARE for step 1, which the plan of another attempt withdraws.
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(Push({OpenRequest(rank, 1), ChunkRequest(0, {1, 2, 3, 4, 5, 6}),
                      ChunkRequest(1, {1, 2, 3, 4}), FinishRequest()})
                    .ok());
  }
  ASSERT_TRUE(coordinator_->Receive().has_prepared());
  v1::StepPlan reopened = TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  coordinator_->Send(PlanOf(reopened));
  EXPECT_TRUE(coordinator_->Ask(PlanOf(TrainPlan(1, 1, 1))).has_refused());
  {
    // This attempt was replaced.
    const testing::CapturedLog log;
    EXPECT_EQ(Push({OpenRequest(1, 1)}).error_code(), grpc::StatusCode::ABORTED);
    EXPECT_THAT(log.text(), HasSubstr("push of a caller on this machine aborted: ABORTED: "));
  }
  // The ballot of the first message is not promised.
  EXPECT_TRUE(coordinator_->Ask(PromiseOf(0)).has_refused());
  EXPECT_TRUE(coordinator_->Ask(PromiseOf(2)).has_state());
  std::map<std::string, uint64_t> counted = Counted();
  EXPECT_EQ(counted["promise"], 2u);
  EXPECT_EQ(counted["push_refused.invalid_argument"], 1u);
  EXPECT_EQ(counted["push_aborted"], 1u);
  EXPECT_EQ(counted["pull_refused.unavailable"], 1u);
  EXPECT_EQ(counted["prepare_withdrawn"], 1u);
  EXPECT_EQ(counted["round_reopened"], 1u);
  EXPECT_EQ(counted["control_refused.stale_plan"], 1u);
  EXPECT_EQ(counted["control_refused.invalid"], 1u);
}

TEST_F(ShardServiceTest, DescribesNoOtherJob) {
  v1::DescribeShardRequest request;
  request.set_job("bert");
  v1::DescribeShardResponse response;
  EXPECT_EQ(control_->DescribeShard(WithDeadline().get(), request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Counted()["call_refused.not_found"], 1u);
}

TEST_F(ShardServiceTest, AnswersForOneParameter) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  v1::ShardParameterRequest request;
  request.set_job("gpt2");
  v1::ParameterStats stats;
  ASSERT_TRUE(control_->GetParameterStats(WithDeadline().get(), request, &stats).ok());
  EXPECT_GT(stats.weight_norm(), 9);
  v1::ParameterDiagnostics diagnostics;
  ASSERT_TRUE(control_->GetParameterDiagnostics(WithDeadline().get(), request, &diagnostics).ok());
  EXPECT_EQ(diagnostics.rule(), "muon");
  v1::ShardSliceRequest slice_request;
  slice_request.set_parameter_id(request.parameter_id());
  slice_request.set_tensor("weight");
  slice_request.set_count(2);
  v1::TensorSlice slice;
  ASSERT_TRUE(control_->ReadSlice(WithDeadline().get(), slice_request, &slice).ok());
  EXPECT_EQ(slice.values().size(), 8u);
  slice_request.set_count(0);
  EXPECT_EQ(control_->ReadSlice(WithDeadline().get(), slice_request, &slice).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_parameter_id(3);
  const grpc::Status unknown = control_->GetParameterStats(WithDeadline().get(), request, &stats);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(),
            "parameter_id 3 asked for, this shard holds no such parameter");
  request.set_job("bert");
  EXPECT_EQ(
      control_->GetParameterDiagnostics(WithDeadline().get(), request, &diagnostics).error_code(),
      grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Describe().state_digest(), digest);
}

TEST_F(ShardServiceTest, ReadsTheRecordsOfAppliedEntries) {
  PlanStepOne();
  v1::ReadHistoryResponse response;
  ASSERT_TRUE(History("gpt2", 0, 0, &response).ok());
  ASSERT_EQ(response.records_size(), 2);
  EXPECT_TRUE(response.records(0).plan().has_registration());
  EXPECT_EQ(response.records(1).SerializeAsString(), Applying(LoadPlan(1, 1)).SerializeAsString());
  response.Clear();
  ASSERT_TRUE(History("", 2, 10, &response).ok());
  EXPECT_EQ(response.records_size(), 1);
}

TEST_F(ShardServiceTest, RefusesHistoryThatDoesNotExist) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  v1::ReadHistoryResponse response;
  EXPECT_EQ(History("bert", 0, 0, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  const grpc::Status beyond = History("gpt2", 3, 0, &response);
  EXPECT_EQ(beyond.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(beyond.error_message(), "history from position 3 asked for, kept are 1 .. 2");
  const grpc::Status limit = History("gpt2", 1, 1001, &response);
  EXPECT_EQ(limit.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(limit.error_message(), "limit is 1001, expecting 1 .. 1000 or 0");
  EXPECT_EQ(Describe().state_digest(), digest);
}

}  // namespace
}  // namespace kaon::shard
