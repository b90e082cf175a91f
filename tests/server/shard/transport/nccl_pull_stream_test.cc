// A worker that pulls over NCCL by hand.
#include "server/shard/transport/nccl_pull_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kaon/v1/shard_nccl.grpc.pb.h"
#include "kernels/nccl/link_session.h"
#include "kernels/steady_clock.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/fake_link.h"

namespace kaon::shard {
namespace {

// Calls ShardNccl.Pull with any bytes.
grpc::Status PullBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  const auto context = WithDeadline();
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(context.get(), "/kaon.v1.ShardNccl/Pull", grpc::StubOptions(), &request, &response,
                 [&ended](grpc::Status status) { ended.set_value(std::move(status)); });
  return ended.get_future().get();
}

using kernels::FakeFabric;
using kernels::LinkSession;

struct Fabric {
  const std::shared_ptr<FakeFabric> fabric_ = std::make_shared<FakeFabric>();
};

class NcclPullStreamTest : protected Fabric, public ServedShardTest {
 protected:
  NcclPullStreamTest() : ServedShardTest(/*shm_sessions=*/0, fabric_->NewLink()) {
    link_ = fabric_->NewLink();
    memory_ = *link_->Allocate(1024);
    PlanStepOne();
  }
  ~NcclPullStreamTest() override {
    if (state_ != nullptr) {
      EXPECT_TRUE(link_->Abort({state_->comm()}).ok());
    }
    link_->Free(memory_);
  }

  // Opens a session of rank 0. The worker joins one for pulls.
  uint64_t OpenSession(bool pulls) {
    v1::OpenNcclSessionRequest request;
    request.set_job("gpt2");
    request.set_pulls(pulls);
    v1::OpenNcclSessionResponse opened;
    const grpc::Status status = stub_->OpenSession(WithDeadline().get(), request, &opened);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (!pulls) return opened.session();
    kernels::UniqueId id;
    std::memcpy(id.data(), opened.unique_id().data(), id.size());
    state_ = std::make_unique<LinkSession>(*link_, LinkSession::Options());
    EXPECT_TRUE(state_->Start(id, 1, SteadyNow()).ok());
    while (state_->state() == LinkSession::State::kConnecting) state_->Advance(SteadyNow());
    return opened.session();
  }
  static v1::NcclPullRequest RequestOf(uint64_t session, uint32_t rank = 0) {
    v1::NcclPullRequest request;
    *request.mutable_pull() = PullOf(0, {2, 0});
    request.set_session(session);
    request.set_rank(rank);
    return request;
  }
  grpc::Status End(const v1::NcclPullRequest& request) {
    const auto context = WithDeadline();
    const auto call = stub_->Pull(context.get(), request);
    v1::NcclPullResponse response;
    while (call->Read(&response)) ADD_FAILURE() << response.ShortDebugString();
    return call->Finish();
  }

  std::unique_ptr<v1::ShardNccl::Stub> stub_ = v1::ShardNccl::NewStub(channel_);
  std::shared_ptr<kernels::DeviceLink> link_;
  kernels::Region memory_;
  std::unique_ptr<LinkSession> state_;
};

TEST_F(NcclPullStreamTest, AnnouncesWhatItSends) {
  const uint64_t session = OpenSession(/*pulls=*/true);
  for (uint64_t sequence : {1, 2}) {
    const auto context = WithDeadline();
    const auto call = stub_->Pull(context.get(), RequestOf(session));
    v1::NcclPullResponse response;
    ASSERT_TRUE(call->Read(&response));
    ASSERT_EQ(response.chunks_size(), 2);
    EXPECT_EQ(response.chunks(0).parameter_id(), 2u);
    EXPECT_EQ(response.chunks(1).num_elements(), 6u);
    EXPECT_EQ(response.chunks(1).crc32c(), 0u);
    EXPECT_EQ(response.transfer().session(), session);
    EXPECT_EQ(response.transfer().sequence(), sequence);
    ASSERT_TRUE(state_->Receive(0, memory_.Sub(0, 44), SteadyNow()).ok());
    while (state_->num_under_way() > 0) state_->Advance(SteadyNow());
    EXPECT_EQ(link_->Digest(2, memory_.Sub(0, 44)), response.transfer().digest());
    std::vector<float> values(11);
    std::memcpy(values.data(), memory_.data(), 44);
    EXPECT_EQ(values, std::vector<float>({9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6}));
    EXPECT_FALSE(call->Read(&response));
    EXPECT_TRUE(call->Finish().ok());
  }
}

TEST_F(NcclPullStreamTest, RefusesASessionThatIsNotTheWorkersForPulls) {
  const uint64_t pulls = OpenSession(/*pulls=*/true);
  const uint64_t pushes = OpenSession(/*pulls=*/false);
  grpc::Status status = End(RequestOf(pushes));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("is for pushes, expecting pulls"), std::string::npos);
  status = End(RequestOf(pulls, /*rank=*/1));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("is not of rank 1"), std::string::npos);
  status = End(RequestOf(99));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("session 99 is over"), std::string::npos);
}

TEST_F(NcclPullStreamTest, RefusesASessionBeforeItWaitsForAVersion) {
  v1::NcclPullRequest request = RequestOf(99);
  request.mutable_pull()->set_step(1);
  EXPECT_EQ(End(request).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(NcclPullStreamTest, RefusesARequestThatIsTooLargeOrIsNone) {
  grpc::Status status = PullBytes(channel_, std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "request of 1048577 bytes, expecting at most 1048576");
  status = PullBytes(channel_, "xyz");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "message of 3 bytes is not a kaon.v1.NcclPullRequest");
}

TEST_F(NcclPullStreamTest, AnswersWhatThePublisherRefusesAsShardDataDoes) {
  v1::NcclPullRequest request = RequestOf(OpenSession(/*pulls=*/true));
  request.mutable_pull()->set_step(5);
  EXPECT_EQ(End(request).error_code(), grpc::StatusCode::UNAVAILABLE);
  request.mutable_pull()->set_step(0);
  request.mutable_pull()->add_parameter_ids(7);
  EXPECT_EQ(End(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(NcclPullStreamTest, AWorkerThatLeavesBeforeItHasReceivedEndsItsSession) {
  const uint64_t session = OpenSession(/*pulls=*/true);
  // The session tells its failure as long as it is being aborted.
  fabric_->SetFaults({.abort_hangs = true});
  {
    const auto context = WithDeadline();
    const auto call = stub_->Pull(context.get(), RequestOf(session));
    v1::NcclPullResponse response;
    ASSERT_TRUE(call->Read(&response));
    // An end that has not seen the other one join revokes nothing, and its abort hangs.
    while (fabric_->counts().queued == 0) {
    }
    context->TryCancel();
    EXPECT_FALSE(call->Read(&response));
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The worker's end learns of it.
  while (state_->state() == LinkSession::State::kReady) state_->Advance(SteadyNow());
  const grpc::Status status = End(RequestOf(session));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "NCCL: a pull ended early");
  fabric_->ReleaseAborts();
}

class WithoutNcclTest : public ServedShardTest {};

TEST_F(WithoutNcclTest, RefusesEveryPull) {
  const auto context = WithDeadline();
  const auto stub = v1::ShardNccl::NewStub(channel_);
  const auto call = stub->Pull(context.get(), v1::NcclPullRequest());
  v1::NcclPullResponse response;
  EXPECT_FALSE(call->Read(&response));
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "this shard has no NCCL");
  // It does not parse the request.
  EXPECT_EQ(PullBytes(channel_, "xyz").error_message(), "this shard has no NCCL");
}

}  // namespace
}  // namespace kaon::shard
