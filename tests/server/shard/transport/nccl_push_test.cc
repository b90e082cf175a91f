// A push stream takes payloads over NCCL. nccl_byzantine_test has refusals of single headers.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kaon/v1/server_process.grpc.pb.h"
#include "tests/server/shard/transport/nccl_push_fixture.h"

namespace kaon::shard {
namespace {

uint64_t PushedBytes(const std::shared_ptr<grpc::Channel>& shard) {
  v1::GetProcessResponse process;
  EXPECT_TRUE(v1::ServerProcess::NewStub(shard)
                  ->GetProcess(WithDeadline().get(), v1::GetProcessRequest(), &process)
                  .ok());
  return process.pushed_bytes();
}

using Stream = grpc::ClientReaderWriter<v1::PushRequest, v1::PushResponse>;

TEST_F(NcclPushTest, RefusesAHeaderThatDoesNotFitWithoutAwaitingItsPayload) {
  Session& session = OpenSession(0);
  v1::PushRequest header = Header(session, 1, 1);
  header.mutable_chunk()->set_offset(1);
  const grpc::Status status = Push({OpenRequest(0, 1), header});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "parameter b: offset 1 + 4 elements pushed, it has 4");
}

TEST_F(NcclPushTest, RefusesMessagesThatAreNoHeaders) {
  Session& session = OpenSession(0);
  v1::PushRequest with_payload = Header(session, 1, 1);
  with_payload.set_payload(std::string(16, 'x'));
  grpc::Status status = Push({OpenRequest(0, 1), with_payload});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "nccl is set with 16 bytes of payload, expecting chunks and none");
  v1::PushRequest without_chunk = FinishRequest();
  without_chunk.mutable_nccl()->set_session(session.number);
  status = Push({OpenRequest(0, 1), without_chunk});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::PushRequest unknown = Header(session, 1, 1);
  unknown.mutable_nccl()->set_session(99);
  status = Push({OpenRequest(0, 1), unknown});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::PushRequest one_piece = Header(session, 1, 1);
  *one_piece.add_pieces() = one_piece.chunk();
  one_piece.clear_chunk();
  status = Push({OpenRequest(0, 1), one_piece});
  EXPECT_EQ(status.error_message(), "1 pieces, expecting 2 .. 1024");
}

TEST_F(NcclPushTest, AStrangerNeitherUsesNorEndsASession) {
  Session& session = OpenSession(0);
  const v1::PushRequest stolen = Header(session, 1, 1);
  const grpc::Status status = Push({OpenRequest(1, 1), stolen});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(status.error_message(), "NCCL session 1 is not of rank 1");
  Send(session, 1);
  EXPECT_TRUE(
      Push({OpenRequest(0, 1), ChunkRequest(0, {1, 2, 3, 4, 5, 6}), stolen, FinishRequest()}).ok());
}

TEST_F(NcclPushTest, AFinishWaitsForThePayloadsAnnouncedBeforeIt) {
  const uint64_t before = PushedBytes(channel_);
  Session& session = OpenSession(0);
  const auto context = WithDeadline();
  const std::unique_ptr<Stream> stream = data_->Push(context.get());
  stream->Write(OpenRequest(0, 1));
  stream->Write(ChunkRequest(0, {1, 2, 3, 4, 5, 6}));
  stream->Write(Header(session, 1, 2));
  stream->Write(FinishRequest());
  v1::PushResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_opened());
  // Credit of the payload; only the transfer can bring more.
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.credit_bytes(), 24u);
  Send(session, 1);
  while (stream->Read(&response) && !response.has_finished())
    EXPECT_EQ(response.credit_bytes(), 16u);
  EXPECT_TRUE(response.has_finished());
  EXPECT_TRUE(stream->Finish().ok());
  // Payloads of both ways count.
  EXPECT_EQ(PushedBytes(channel_) - before, 24u + 16u);
}

TEST_F(NcclPushTest, AFinishAfterAPayloadThatFailedEndsWithItsFailure) {
  for (int i = 0; i < 20; ++i) {
    Session& session = OpenSession(0);
    const auto context = WithDeadline();
    const std::unique_ptr<Stream> stream = data_->Push(context.get());
    v1::PushRequest header = Header(session, 1, 2);
    header.mutable_nccl()->set_digest(1);
    Send(session, 1);
    stream->Write(OpenRequest(0, 1));
    stream->Write(header);
    // Read while the payload fails.
    stream->Write(FinishRequest());
    v1::PushResponse response;
    while (stream->Read(&response)) continue;
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  }
}

TEST_F(NcclPushTest, ReadsOnOnlyWhenASlotIsFree) {
  Session& session = OpenSession(0);
  const auto context = WithDeadline();
  const std::unique_ptr<Stream> stream = data_->Push(context.get());
  // Repetitions of the same chunk, which are dropped: six transfers over four slots.
  stream->Write(OpenRequest(0, 1));
  stream->Write(ChunkRequest(0, {1, 2, 3, 4, 5, 6}));
  for (uint64_t sequence = 1; sequence <= 6; ++sequence) {
    stream->Write(Header(session, sequence, 2));
  }
  stream->Write(FinishRequest());
  v1::PushResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_TRUE(stream->Read(&response));
  for (uint64_t sequence = 1; sequence <= 6; ++sequence) Send(session, sequence);
  while (stream->Read(&response)) continue;
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.has_finished());
}

TEST_F(NcclPushTest, AWorkerThatDiesEndsItsSessionAndNoOther) {
  Session& session = OpenSession(0);
  Session& other = OpenSession(1);
  const auto context = WithDeadline();
  const std::unique_ptr<Stream> stream = data_->Push(context.get());
  stream->Write(OpenRequest(0, 1));
  stream->Write(Header(session, 1, 2));
  v1::PushResponse response;
  ASSERT_TRUE(stream->Read(&response));
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  const v1::PushRequest header = Header(other, 1, 2);
  Send(other, 1);
  EXPECT_TRUE(
      Push({OpenRequest(1, 1), ChunkRequest(0, {1, 2, 3, 4, 5, 6}), header, FinishRequest()}).ok());
}

}  // namespace
}  // namespace kaon::shard
