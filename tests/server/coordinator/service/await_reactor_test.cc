#include "server/coordinator/service/await_reactor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/coordinator/server_fixture.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

// An open step whose plan was sent on the stream of rank 0.
class AwaitReactorTest : public ServerFixture {
 protected:
  void SetUp() override {
    ServerFixture::SetUp();
    Train(1);
    shards_[0]->set_votes(false);
    v1::BeginStepResponse begun;
    ASSERT_TRUE(Begin(BeginRequest(0, 1), &begun).ok());
    reader_ = coordinator_->AwaitStep(&context_, AwaitRequest(0, 1));
    ASSERT_TRUE(reader_->Read(&event_));
    ASSERT_TRUE(event_.has_planned());
    before_ = Total();
  }
  // The next thing on the stream is its end.
  grpc::Status End() {
    EXPECT_FALSE(reader_->Read(&event_));
    return reader_->Finish();
  }
  // Calls, since then.
  uint64_t Refused() { return Total() - before_; }
  uint64_t Total() {
    uint64_t refused = 0;
    for (const auto& [name, count] : Counted()) {
      if (name.rfind("call_refused", 0) == 0) refused += count;
    }
    return refused;
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::StepEvent>> reader_;
  v1::StepEvent event_;
  uint64_t before_ = 0;
};

TEST_F(AwaitReactorTest, LaterAwaitOfTheSameWorkerEndsTheEarlier) {
  grpc::ClientContext context;
  const auto later = coordinator_->AwaitStep(&context, AwaitRequest(0, 1));
  EXPECT_EQ(End().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(later->Read(&event_));
  EXPECT_TRUE(event_.has_planned());
  EXPECT_EQ(Refused(), 0u);
}

TEST_F(AwaitReactorTest, WorkerWhoseRankWasTakenIsAborted) {
  v1::JoinWorkerRequest join = JoinRequest(0);
  join.set_process_nonce(4711);
  v1::JoinWorkerResponse joined;
  ASSERT_TRUE(Join(join, &joined).ok());
  const grpc::Status end = End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(end.error_message(), HasSubstr("rank 0"));
  EXPECT_EQ(Refused(), 1u);
  EXPECT_EQ(Counted()["call_refused.aborted"], 1u);
}

TEST_F(AwaitReactorTest, CancelledStreamLeavesTheStepToItself) {
  context_.TryCancel();
  EXPECT_EQ(End().error_code(), grpc::StatusCode::CANCELLED);
  shards_[0]->set_votes(true);
  std::vector<v1::StepEvent> events;
  ASSERT_TRUE(Await(AwaitRequest(0, 1), &events).ok());
  EXPECT_TRUE(events.back().has_decided());
  EXPECT_EQ(Refused(), 0u);
}

TEST_F(AwaitReactorTest, RecordEndsTheStream) {
  shards_[0]->set_votes(true);
  ASSERT_TRUE(reader_->Read(&event_));
  EXPECT_TRUE(event_.has_decided());
  EXPECT_TRUE(End().ok());
}

}  // namespace
}  // namespace kaon::coordinator
