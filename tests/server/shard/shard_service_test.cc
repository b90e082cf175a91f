#include "server/shard/shard_service.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/server/shard/served_shard.h"

namespace kaon::shard {
namespace {

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
};

TEST_F(ShardServiceTest, DescribesWhatItHolds) {
  EXPECT_EQ(Describe().state().applied_position(), 0u);
  PlanStepOne();
  const v1::DescribeShardResponse response = Describe();
  EXPECT_EQ(response.state().applied_position(), 2u);
  EXPECT_EQ(response.parameters_size(), 3);
  EXPECT_EQ(response.capacity_bytes(), 1u << 20);
  EXPECT_GT(response.used_bytes(), 0u);
  EXPECT_EQ(response.backend(), "cpu/reference");
}

TEST_F(ShardServiceTest, DescribesNoOtherJob) {
  v1::DescribeShardRequest request;
  request.set_job("bert");
  v1::DescribeShardResponse response;
  EXPECT_EQ(control_->DescribeShard(WithDeadline().get(), request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
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
