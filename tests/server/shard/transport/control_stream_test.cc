#include "server/shard/transport/control_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/shard/transport/served_shard.h"

namespace kaon::shard {
namespace {

class ControlStreamTest : public ServedShardTest {
 protected:
  v1::CoordinatorToShard ProbeMessage() {
    v1::CoordinatorToShard message = Envelope(0);
    message.mutable_probe();
    return message;
  }
};

TEST_F(ControlStreamTest, AnswersMessagesInOrder) {
  ControlCall call(*control_);
  EXPECT_TRUE(call.Ask(ProbeMessage()).has_probed());
  EXPECT_TRUE(call.Ask(PromiseOf(1)).has_state());
  EXPECT_TRUE(call.Ask(ProbeMessage()).has_probed());
  EXPECT_TRUE(call.End().ok());
}

TEST_F(ControlStreamTest, TwoCoordinatorsHearAboutEachOther) {
  ControlCall first(*control_);
  ControlCall second(*control_);
  ASSERT_TRUE(first.Ask(PromiseOf(1)).has_state());
  ASSERT_TRUE(second.Ask(PromiseOf(2)).has_state());
  const v1::ShardToCoordinator reply = first.Ask(PlanOf(RegistrationPlan(1, 1)));
  EXPECT_EQ(reply.refused().reason(), v1::REFUSAL_REASON_OLD_BALLOT);
  EXPECT_EQ(reply.promised().counter(), 2u);
}

TEST_F(ControlStreamTest, EndsAStreamThatAddressesAnotherShard) {
  ControlCall first(*control_);
  ASSERT_TRUE(first.Ask(PromiseOf(1)).has_state());
  ControlCall second(*control_);
  v1::CoordinatorToShard message = ProbeMessage();
  message.set_num_shards(3);
  second.Send(message);
  const grpc::Status status = second.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              ::testing::StartsWith("this is shard 0 of 1, addressed as shard 0 of 3: "));
}

// A coordinator with a wrong list of shards may have looked before it was stopped.
TEST_F(ControlStreamTest, AProbeDoesNotSayWhichShardThisIs) {
  ControlCall first(*control_);
  v1::CoordinatorToShard message = ProbeMessage();
  message.set_num_shards(3);
  message.set_shard(2);
  ASSERT_TRUE(first.Ask(message).has_probed());
  ControlCall second(*control_);
  EXPECT_TRUE(second.Ask(PromiseOf(1)).has_state());
}

TEST_F(ControlStreamTest, RefusesMalformedMessagesAndStaysOpen) {
  PlanStepOne();
  const uint64_t digest = Describe().state_digest();
  EXPECT_EQ(coordinator_->Ask(Envelope(1)).refused().reason(), v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(coordinator_->Ask(PromiseOf(0)).refused().reason(), v1::REFUSAL_REASON_INVALID);
  v1::StepPlan weightless = TrainPlan(1, 1, 2);
  weightless.mutable_step()->mutable_members(0)->set_token_weight(0);
  EXPECT_EQ(coordinator_->Ask(PlanOf(weightless)).refused().reason(), v1::REFUSAL_REASON_INVALID);
  v1::StepRecord undecided = Applying(TrainPlan(1, 1, 1));
  undecided.mutable_decision()->clear_outcome();
  EXPECT_EQ(coordinator_->Ask(DecisionOf(undecided)).refused().reason(),
            v1::REFUSAL_REASON_INVALID);
  EXPECT_EQ(coordinator_->Ask(DecisionOf(Applying(TrainPlan(1, 1, 1)))).refused().reason(),
            v1::REFUSAL_REASON_STALE_PLAN);
  EXPECT_EQ(Describe().state_digest(), digest);
}

TEST_F(ControlStreamTest, EndsAtShutdown) {
  ControlCall call(*control_);
  ASSERT_TRUE(call.Ask(ProbeMessage()).has_probed());
  server_->Shutdown();
  EXPECT_EQ(call.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace kaon::shard
