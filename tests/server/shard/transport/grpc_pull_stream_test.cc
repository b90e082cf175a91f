#include "server/shard/transport/grpc_pull_stream.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "proto/crc32c.h"
#include "tests/server/shard/transport/served_shard.h"

namespace kaon::shard {
namespace {

class PullStreamTest : public ServedShardTest {
 protected:
  PullStreamTest() { PlanStepOne(); }

  void ExpectRefused(grpc::StatusCode code, const std::string& words,
                     const std::function<void(v1::PullRequest*)>& spoil) {
    const uint64_t digest = Describe().state_digest();
    v1::PullRequest request = PullOf(0, {0});
    spoil(&request);
    const grpc::Status status = Pull(request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_NE(status.error_message().find(words), std::string::npos) << status.error_message();
    EXPECT_EQ(Describe().state_digest(), digest);
  }
};

TEST_F(PullStreamTest, SendsTheParametersInTheOrderAskedFor) {
  std::vector<v1::PullResponse> responses;
  const grpc::Status status = Pull(PullOf(0, {2, 0}), &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  // Small ones share a message.
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_FALSE(responses[0].has_chunk());
  ASSERT_EQ(responses[0].pieces_size(), 2);
  const v1::TensorChunk& first = responses[0].pieces(0);
  const v1::TensorChunk& second = responses[0].pieces(1);
  EXPECT_EQ(first.parameter_id(), 2u);
  const float expected[] = {1, 2, 3, 4, 5, 6};
  const std::string& payload = responses[0].payload();
  ASSERT_EQ(payload.size(), first.num_elements() * sizeof(float) + sizeof(expected));
  const char* last = payload.data() + first.num_elements() * sizeof(float);
  EXPECT_EQ(std::memcmp(last, expected, sizeof(expected)), 0);
  EXPECT_EQ(second.num_elements(), 6u);
  EXPECT_EQ(first.crc32c(), proto::Crc32c(payload.data(), first.num_elements() * sizeof(float)));
  EXPECT_EQ(second.crc32c(), proto::Crc32c(expected, sizeof(expected)));
}

TEST_F(PullStreamTest, SendsAParameterThatIsAloneAsAChunk) {
  std::vector<v1::PullResponse> responses;
  ASSERT_TRUE(Pull(PullOf(0, {0}), &responses).ok());
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].pieces_size(), 0);
  EXPECT_EQ(responses[0].chunk().num_elements(), 6u);
}

TEST_F(PullStreamTest, SendsNoMorePiecesInAMessageThanItMayHave) {
  std::vector<v1::PullResponse> responses;
  ASSERT_TRUE(Pull(PullOf(0, std::vector<uint32_t>(1025, 2)), &responses).ok());
  ASSERT_EQ(responses.size(), 2u);
  EXPECT_EQ(responses[0].pieces_size(), 1024);
  EXPECT_TRUE(responses[1].has_chunk());
}

TEST_F(PullStreamTest, RoundsToTheTypeAskedFor) {
  v1::PullRequest request = PullOf(0, {0});
  request.set_dtype(v1::DTYPE_BFLOAT16);
  std::vector<v1::PullResponse> responses;
  ASSERT_TRUE(Pull(request, &responses).ok());
  ASSERT_EQ(responses.at(0).payload().size(), 12u);
  uint16_t first = 0;
  std::memcpy(&first, responses[0].payload().data(), sizeof(first));
  EXPECT_EQ(first, 0x3f80);
}

TEST_F(PullStreamTest, AnEmptyListIsAnEmptyAnswer) {
  std::vector<v1::PullResponse> responses;
  EXPECT_TRUE(Pull(PullOf(0, {}), &responses).ok());
  EXPECT_TRUE(responses.empty());
}

TEST_F(PullStreamTest, WaitsForAStepThatIsPlanned) {
  std::vector<v1::PullResponse> responses;
  grpc::Status status;
  std::thread reader([&] { status = Pull(PullOf(1, {0, 2}), &responses); });
  for (uint32_t rank : {0, 1}) {
    EXPECT_TRUE(
        Push({OpenRequest(rank, 1), ChunkRequest(0, {1, 0, 0, 0, 1, 0}), FinishRequest({1})}).ok());
  }
  EXPECT_TRUE(coordinator_->Receive().has_prepared());
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
  reader.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  uint64_t elements = 0;
  for (const v1::PullResponse& response : responses) {
    elements += response.chunk().num_elements();
    for (const v1::TensorChunk& piece : response.pieces()) elements += piece.num_elements();
  }
  EXPECT_EQ(elements, 6u + 5u);
}

// A reader that has begun to read a version gets all of it while the job continues (P5).
TEST_F(PullStreamTest, ASlowReaderIsNotOvertaken) {
  // More than is on its way to one that does not read, and whose window does not grow.
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  const auto slow = v1::ShardData::NewStub(grpc::CreateCustomChannel(
      "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials(), narrow));
  std::vector<uint32_t> parameters(kMaxPulledParameters, 2);
  parameters[parameters.size() - 2] = 0;
  parameters.back() = 1;
  const uint64_t used_bytes = Describe().used_bytes();
  const auto context = WithDeadline();
  const auto stream = slow->Pull(context.get(), PullOf(0, parameters));
  std::vector<v1::PullResponse> responses(1);
  ASSERT_TRUE(stream->Read(&responses.back()));
  for (uint64_t step = 1; step <= 3; ++step) {
    for (uint32_t rank : {0, 1}) {
      grpc::Status pushed;
      // The plan travels on another stream.
      do {
        pushed = Push({OpenRequest(rank, step), ChunkRequest(0, {1, 0, 0, 0, 1, 0}),
                       ChunkRequest(1, {1, 2, 3, 4}), FinishRequest()});
      } while (pushed.error_code() == grpc::StatusCode::UNAVAILABLE);
      ASSERT_TRUE(pushed.ok()) << pushed.error_message();
    }
    EXPECT_TRUE(coordinator_->Receive().has_prepared());
    ASSERT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(step, 1, 1)))).has_applied());
    coordinator_->Send(PlanOf(TrainPlan(step + 1, 1, 1)));
  }
  EXPECT_GT(Describe().used_bytes(), used_bytes);
  while (stream->Read(&responses.emplace_back())) {
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  responses.pop_back();
  const float expected[] = {1, 2, 3, 4, 5, 6, 1, 1, 1, 1};
  const std::string& payload = responses.back().payload();
  ASSERT_GT(payload.size(), sizeof(expected));
  EXPECT_EQ(
      std::memcmp(payload.data() + payload.size() - sizeof(expected), expected, sizeof(expected)),
      0);
  EXPECT_EQ(Describe().used_bytes(), used_bytes);
}

TEST_F(PullStreamTest, AReaderThatLeavesWhileItWaitsIsForgotten) {
  const auto context = WithDeadline();
  const auto stream = data_->Pull(context.get(), PullOf(1, {0}));
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(Push({OpenRequest(rank, 1), FinishRequest({0, 1})}).ok());
  }
  ASSERT_TRUE(coordinator_->Receive().has_prepared());
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
}

TEST_F(PullStreamTest, EndsAWaitAtShutdown) {
  grpc::Status status;
  std::thread reader([&] { status = Pull(PullOf(1, {0})); });
  server_->Shutdown();
  reader.join();
  // CANCELLED is gRPC's own answer to a call that arrives once the shutdown has begun.
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
              status.error_code() == grpc::StatusCode::CANCELLED)
      << status.error_code() << ": " << status.error_message();
}

TEST_F(PullStreamTest, RefusesARequestThatDoesNotFit) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectRefused(grpc::StatusCode::NOT_FOUND, "job 'bert' pulled, this shard holds 'gpt2'",
                [](v1::PullRequest* r) { r->set_job("bert"); });
  ExpectRefused(grpc::StatusCode::FAILED_PRECONDITION, "timeline 0 pulled, expecting 1",
                [](v1::PullRequest* r) { r->set_timeline(0); });
  ExpectRefused(grpc::StatusCode::UNAVAILABLE, "timeline 3 pulled, expecting 1",
                [](v1::PullRequest* r) { r->set_timeline(3); });
  ExpectRefused(grpc::StatusCode::UNAVAILABLE, "version 2 pulled, the newest is 0",
                [](v1::PullRequest* r) { r->set_step(2); });
  ExpectRefused(invalid, "parameter_id 7 pulled",
                [](v1::PullRequest* r) { r->add_parameter_ids(7); });
  ExpectRefused(invalid, "dtype 0 pulled", [](v1::PullRequest* r) { r->clear_dtype(); });
  ExpectRefused(invalid, "parameter_ids has 100001 entries", [](v1::PullRequest* r) {
    for (int i = 0; i < 100000; ++i) r->add_parameter_ids(0);
  });
  ExpectRefused(grpc::StatusCode::RESOURCE_EXHAUSTED, "bytes, expecting at most 1048576",
                [](v1::PullRequest* r) { r->set_job(std::string(2 << 20, 'x')); });
}

}  // namespace
}  // namespace kaon::shard
