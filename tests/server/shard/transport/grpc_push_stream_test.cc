#include "server/shard/transport/grpc_push_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proto/tensor_stream.h"
#include "tests/server/shard/transport/served_shard.h"

namespace kaon::shard {
namespace {

const std::vector<float> kW = {1, 2, 3, 4, 5, 6};
const std::vector<float> kB = {1, 2, 3, 4};

class PushStreamTest : public ServedShardTest {
 protected:
  PushStreamTest() { PlanStepOne(); }

  // The refusal of `requests` has this code and these words, and changes no state.
  void ExpectRefused(const std::vector<v1::PushRequest>& requests, grpc::StatusCode code,
                     const std::string& words) {
    const uint64_t digest = Describe().state_digest();
    const grpc::Status status = Push(requests);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_NE(status.error_message().find(words), std::string::npos) << status.error_message();
    EXPECT_EQ(Describe().state_digest(), digest);
  }
  void ExpectChunkRefused(grpc::StatusCode code, const std::string& words,
                          const std::function<void(v1::PushRequest*)>& spoil) {
    v1::PushRequest request = ChunkRequest(1, kB);
    spoil(&request);
    ExpectRefused({OpenRequest(0, 1), request}, code, words);
  }
  // W and B whole, in one message.
  static v1::PushRequest PiecesRequest() {
    v1::PushRequest request;
    for (const v1::PushRequest& one : {ChunkRequest(0, kW), ChunkRequest(1, kB)}) {
      *request.add_pieces() = one.chunk();
      *request.mutable_payload() += one.payload();
    }
    return request;
  }
  void ExpectPiecesRefused(grpc::StatusCode code, const std::string& words,
                           const std::function<void(v1::PushRequest*)>& spoil) {
    v1::PushRequest request = PiecesRequest();
    spoil(&request);
    ExpectRefused({OpenRequest(0, 1), request}, code, words);
  }
  void ExpectOpenRefused(grpc::StatusCode code, const std::string& words,
                         const std::function<void(v1::PushOpen*)>& spoil) {
    v1::PushRequest request = OpenRequest(0, 1);
    spoil(request.mutable_open());
    ExpectRefused({request}, code, words);
  }
};

TEST_F(PushStreamTest, GrantsCreditTakesChunksAndConfirmsTheFinish) {
  std::vector<v1::PushResponse> responses;
  const grpc::Status status = Push(
      {OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()}, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(responses.front().opened().credit_bytes(), uint64_t{32} << 20);
  EXPECT_TRUE(responses.back().has_finished());
}

TEST_F(PushStreamTest, AStepOfBothWorkersIsPreparedAndApplied) {
  for (uint32_t rank : {1, 0}) {
    ASSERT_TRUE(
        Push({OpenRequest(rank, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()})
            .ok());
  }
  EXPECT_EQ(coordinator_->Receive().prepared().sums_size(), 2);
  EXPECT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).has_applied());
  EXPECT_EQ(Describe().state().applied_step(), 1u);
  ExpectRefused({OpenRequest(0, 1)}, grpc::StatusCode::FAILED_PRECONDITION,
                "step 1 pushed, expecting 2");
}

TEST_F(PushStreamTest, ReturnsCreditForWhatIsFolded) {
  const auto context = WithDeadline();
  const auto stream = data_->Push(context.get());
  stream->Write(OpenRequest(0, 1));
  v1::PushResponse response;
  ASSERT_TRUE(stream->Read(&response));
  stream->Write(ChunkRequest(0, kW));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.credit_bytes(), 24u);
  context->TryCancel();
}

TEST_F(PushStreamTest, EndsStreamsOfAReopenedStepWithAborted) {
  const auto context = WithDeadline();
  const auto stream = data_->Push(context.get());
  stream->Write(OpenRequest(0, 1));
  v1::PushResponse response;
  ASSERT_TRUE(stream->Read(&response));
  v1::StepPlan reopened = TrainPlan(1, 1, 2);
  reopened.mutable_step()->mutable_members(1)->mutable_attempt()->set_number(9);
  coordinator_->Send(PlanOf(reopened));
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(PushStreamTest, RefusesAnOpenThatDoesNotFit) {
  ExpectOpenRefused(grpc::StatusCode::NOT_FOUND, "job 'bert' pushed, this shard holds 'gpt2'",
                    [](v1::PushOpen* open) { open->set_job("bert"); });
  ExpectOpenRefused(grpc::StatusCode::FAILED_PRECONDITION, "timeline 0 pushed, expecting 1",
                    [](v1::PushOpen* open) { open->set_timeline(0); });
  ExpectOpenRefused(grpc::StatusCode::UNAVAILABLE, "timeline 7 pushed, expecting 1",
                    [](v1::PushOpen* open) { open->set_timeline(7); });
  ExpectOpenRefused(grpc::StatusCode::FAILED_PRECONDITION, "step 0 pushed, expecting 1",
                    [](v1::PushOpen* open) { open->set_step(0); });
  ExpectOpenRefused(grpc::StatusCode::UNAVAILABLE, "step 2 pushed, expecting 1",
                    [](v1::PushOpen* open) { open->set_step(2); });
  ExpectOpenRefused(grpc::StatusCode::INVALID_ARGUMENT,
                    "rank 2 pushed, which takes no part in step 1",
                    [](v1::PushOpen* open) { open->set_rank(2); });
  ExpectOpenRefused(grpc::StatusCode::ABORTED, "of rank 0 pushed, the plan has",
                    [](v1::PushOpen* open) { open->mutable_attempt()->set_number(9); });
}

TEST_F(PushStreamTest, RefusesAChunkThatDoesNotFit) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectChunkRefused(invalid, "parameter_id is 3, expecting 0 .. 2",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_parameter_id(3); });
  ExpectChunkRefused(invalid, "parameter f is frozen",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_parameter_id(2); });
  ExpectChunkRefused(invalid, "dtype 9 pushed", [](v1::PushRequest* r) {
    r->mutable_chunk()->set_dtype(static_cast<v1::DType>(9));
  });
  ExpectChunkRefused(invalid, "payload has 16 bytes, expecting 8",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_dtype(v1::DTYPE_BFLOAT16); });
  ExpectChunkRefused(invalid, "payload has 16 bytes, expecting 12",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_num_elements(3); });
  ExpectChunkRefused(invalid, "offset 1 + 4 elements pushed, it has 4",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_offset(1); });
  ExpectChunkRefused(invalid, "micro-batch 5 of rank 0",
                     [](v1::PushRequest* r) { r->mutable_chunk()->set_micro_batch(5); });
  ExpectChunkRefused(grpc::StatusCode::DATA_LOSS, "parameter 1 micro-batch 0",
                     [](v1::PushRequest* r) { (*r->mutable_payload())[3] ^= 1; });
}

TEST_F(PushStreamTest, TakesSeveralChunksInOneMessage) {
  std::vector<v1::PushResponse> responses;
  const grpc::Status status =
      Push({OpenRequest(0, 1), PiecesRequest(), FinishRequest()}, &responses);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(responses.back().has_finished());
}

TEST_F(PushStreamTest, RefusesPiecesThatDoNotFit) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectPiecesRefused(invalid, "2 of open, finish, chunk and pieces are set",
                      [](v1::PushRequest* r) { *r->mutable_chunk() = r->pieces(0); });
  ExpectPiecesRefused(invalid, "pieces has 1 entries, expecting 2 .. 1024",
                      [](v1::PushRequest* r) { r->mutable_pieces()->RemoveLast(); });
  ExpectPiecesRefused(invalid, "pieces has 1025 entries, expecting 2 .. 1024",
                      [](v1::PushRequest* r) {
                        while (r->pieces_size() < 1025) r->add_pieces();
                      });
  ExpectPiecesRefused(invalid, "payload has 41 bytes, its 2 pieces have 40",
                      [](v1::PushRequest* r) { r->mutable_payload()->push_back('x'); });
  ExpectPiecesRefused(invalid, "pieces[1] of parameter 1: num_elements is 0",
                      [](v1::PushRequest* r) { r->mutable_pieces(1)->set_num_elements(0); });
  ExpectPiecesRefused(invalid, "parameter b: offset 1 + 4 elements pushed, it has 4",
                      [](v1::PushRequest* r) { r->mutable_pieces(1)->set_offset(1); });
  ExpectPiecesRefused(invalid, "parameter_id is 3, expecting 0 .. 2",
                      [](v1::PushRequest* r) { r->mutable_pieces(1)->set_parameter_id(3); });
  ExpectPiecesRefused(grpc::StatusCode::DATA_LOSS, "parameter 1 micro-batch 0",
                      [](v1::PushRequest* r) { r->mutable_payload()->back() ^= 1; });
  ExpectRefused({PiecesRequest()}, invalid, "the first message is a chunk, expecting open");
  // None of the refused messages left anything behind, not even the piece before the wrong one.
  std::vector<v1::PushResponse> responses;
  ASSERT_TRUE(Push({OpenRequest(0, 1), PiecesRequest(), FinishRequest()}, &responses).ok());
  EXPECT_EQ(responses.front().opened().received_size(), 0);
}

TEST_F(PushStreamTest, RefusesChunksThatDoNotFollowOneAnother) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectRefused({OpenRequest(0, 1), ChunkRequest(0, {6}, 5)}, invalid,
                "gap: elements from 5 pushed, expecting from 0");
  ExpectRefused({OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(0, {6}, 5)}, invalid,
                "overlap: elements 5 .. 6 pushed");
  ExpectRefused({OpenRequest(0, 1), ChunkRequest(0, {1, 2, 3, 4, 5, 7})},
                grpc::StatusCode::ALREADY_EXISTS, "parameter w of rank 0");
  ExpectRefused({OpenRequest(0, 1), FinishRequest()}, invalid,
                "parameter b of rank 0 micro-batch 0: finished with 0 elements, expecting 4");
}

// The shard remembers each accepted chunk until the step is applied.
TEST_F(PushStreamTest, RefusesASmallChunkThatDoesNotEndItsParameter) {
  ExpectRefused({OpenRequest(0, 1), ChunkRequest(0, {1, 2, 3, 4, 5})},
                grpc::StatusCode::INVALID_ARGUMENT,
                "parameter w: payload has 20 bytes, expecting at least 4096");
  std::vector<v1::PushResponse> responses;
  ASSERT_TRUE(Push({OpenRequest(0, 1), ChunkRequest(0, kW), ChunkRequest(1, kB), FinishRequest()},
                   &responses)
                  .ok());
  EXPECT_EQ(responses.front().opened().received_size(), 0);
}

TEST_F(PushStreamTest, RefusesMessagesOutOfOrder) {
  const auto invalid = grpc::StatusCode::INVALID_ARGUMENT;
  ExpectRefused({ChunkRequest(1, kB)}, invalid, "the first message is a chunk, expecting open");
  ExpectRefused({FinishRequest()}, invalid, "the first message is a finish, expecting open");
  ExpectRefused({OpenRequest(0, 1), OpenRequest(0, 1)}, invalid, "open was sent twice");
  ExpectRefused({v1::PushRequest()}, invalid, "0 of open, finish, chunk and pieces are set");
  v1::PushRequest both = OpenRequest(0, 1);
  both.mutable_finish();
  ExpectRefused({both}, invalid, "2 of open, finish, chunk and pieces are set");
  v1::PushRequest payload = OpenRequest(0, 1);
  payload.set_payload("abc");
  ExpectRefused({payload}, invalid, "payload of 3 bytes without a chunk");
  ExpectRefused({}, invalid, "the push stream ended without a finish");
  ExpectRefused({OpenRequest(0, 1), ChunkRequest(1, kB)}, invalid, "ended without a finish");
}

TEST_F(PushStreamTest, RefusesAMessageThatIsTooLarge) {
  v1::PushRequest request = ChunkRequest(1, kB);
  request.set_payload(std::string(2 << 20, 'x'));
  ExpectRefused({OpenRequest(0, 1), request}, grpc::StatusCode::RESOURCE_EXHAUSTED,
                "bytes pushed, expecting at most 1114112");
}

TEST_F(PushStreamTest, RefusesACompressedMessage) {
  const uint64_t digest = Describe().state_digest();
  const auto context = WithDeadline();
  context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const auto stream = data_->Push(context.get());
  v1::PushRequest request = OpenRequest(0, 1);
  request.mutable_open()->set_job(std::string(10000, 'a'));
  stream->Write(request);
  v1::PushResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Describe().state_digest(), digest);
}

}  // namespace
}  // namespace kaon::shard
