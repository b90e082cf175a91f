#include "client/worker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/client/worker_session_fixture.h"

namespace kaon::client {
namespace {

using ::testing::HasSubstr;

using WorkerSessionAttemptTest = WorkerSessionTest;

TEST_F(WorkerSessionAttemptTest, DoesNotJoinAgainForTheNextStep) {
  session_.OnEvent(ReachAwait(), RecordOf(7), now_);
  session_.TakeActions();
  session_.Begin({8, 10, 1, 1}, now_);
  EXPECT_EQ(Only<CallBegin>().share.step, 8u);
}

TEST_F(WorkerSessionAttemptTest, FollowsTheHolderHintAtOnceKeepingItsAttempt) {
  session_.OnAwaitEnded(ReachAwait(), absl::FailedPreconditionError("not the holder"), "c:1", now_);
  const CallJoin join = Only<CallJoin>();
  EXPECT_EQ(join.coordinator, "c:1");
  ASSERT_TRUE(join.previous_attempt.has_value());
  EXPECT_EQ(join.previous_attempt->ballot().counter(), 4u);
  session_.OnJoin(join.call, JoinedAs(AttemptOf(4)), "", now_);
  const CallBegin begin = Only<CallBegin>();
  EXPECT_EQ(begin.coordinator, "c:1");
  EXPECT_EQ(begin.share.token_weight, 10);
  session_.OnBegin(begin.call, std::nullopt, "", now_);
  EXPECT_EQ(Only<CallAwait>().coordinator, "c:1");
}

TEST_F(WorkerSessionAttemptTest, JoinsAgainKeepingItsAttemptWhenBeginIsAborted) {
  session_.Begin({7, 10, 1, 1}, now_);
  session_.OnJoin(Only<CallJoin>().call, JoinedAs(AttemptOf(4)), "", now_);
  session_.OnBegin(Only<CallBegin>().call, absl::AbortedError("join again"), "", now_);
  const CallJoin again = Only<CallJoin>();
  EXPECT_EQ(again.coordinator, "a:1");
  EXPECT_TRUE(again.previous_attempt.has_value());
}

TEST_F(WorkerSessionAttemptTest, EndsTheStepWhenAnotherProcessTookTheRank) {
  session_.OnAwaitEnded(ReachAwait(), absl::AbortedError("join again"), "", now_);
  session_.OnJoin(Only<CallJoin>().call, absl::AbortedError("rank 3 was taken"), "", now_);
  EXPECT_EQ(StepError(), absl::AbortedError("rank 3 was taken"));
}

TEST_F(WorkerSessionAttemptTest, RefusesAnAttemptThatEchoesAnotherProcess) {
  session_.Begin({7, 10, 1, 1}, now_);
  Joined joined = JoinedAs(AttemptOf(4));
  joined.process_nonce = kNonce + 1;
  session_.OnJoin(Only<CallJoin>().call, joined, "", now_);
  const absl::Status error = StepError();
  EXPECT_TRUE(absl::IsAborted(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("rank 3"));
}

// P3: the shards have a part of the first gradient, under the attempt that pushed it.
TEST_F(WorkerSessionAttemptTest, NeverBeginsAStepAgainUnderTheAttemptThatPushedItsFirstGradient) {
  const std::vector<std::function<void(const StartPush&)>> ends = {
      [&](const StartPush&) { session_.Abandon(); },
      [&](const StartPush& push) {
        session_.OnPushEnded(push.call, push.shard, absl::DataLossError("checksum"), now_);
      },
      [&](const StartPush&) {
        session_.OnAwaitEnded(await_, absl::DataLossError("stopped"), "", now_);
      },
      [&](const StartPush&) {
        session_.OnAwaitEnded(await_, absl::UnavailableError("down"), "", now_);
        session_.Abandon();
      },
  };
  std::set<std::string> attempts;
  std::set<uint64_t> nonces;
  for (const auto& end : ends) {
    const StartPush push = ReachPush()[1];
    attempts.insert(push.attempt.SerializeAsString());
    end(push);
    ASSERT_TRUE(session_.idle());
    session_.TakeActions();
    // With another share, too.
    session_.Begin({7, 11, 2, 1}, now_);
    const CallJoin confirming = Only<CallJoin>();
    ASSERT_TRUE(confirming.previous_attempt.has_value());
    EXPECT_EQ(confirming.previous_attempt->SerializeAsString(), push.attempt.SerializeAsString());
    Allot(confirming);
    const CallJoin joining = Only<CallJoin>();
    EXPECT_FALSE(joining.previous_attempt.has_value());
    EXPECT_NE(joining.process_nonce, confirming.process_nonce);
    Allot(joining);
    const CallBegin begin = Only<CallBegin>();
    EXPECT_NE(begin.attempt.SerializeAsString(), push.attempt.SerializeAsString());
    EXPECT_EQ(begin.process_nonce, joining.process_nonce);
    nonces.insert(joining.process_nonce);
    session_.Abandon();
    session_.TakeActions();
  }
  // No attempt or nonce is one that it had before.
  EXPECT_EQ(attempts.size(), ends.size());
  EXPECT_EQ(nonces.size(), ends.size());
  EXPECT_EQ(nonces.count(kNonce) + nonces.count(0), 0u);
}

TEST_F(WorkerSessionAttemptTest, KeepsTheAttemptOfAStepThatEndedWithItsRecord) {
  const StartPush push = ReachPush()[0];
  session_.OnEvent(await_, RecordOf(7), now_);
  session_.TakeActions();
  // Without a step in progress, Abandon does nothing.
  session_.Abandon();
  session_.Begin({8, 10, 1, 1}, now_);
  EXPECT_EQ(Only<CallBegin>().attempt.SerializeAsString(), push.attempt.SerializeAsString());
}

// The answer to the join is lost with the step. The coordinator must not mistake the next join for
// that of another process.
TEST_F(WorkerSessionAttemptTest, AsksAgainForTheAttemptThatItHasNotBegunWith) {
  ReachPush();
  session_.Abandon();
  session_.TakeActions();
  session_.Begin({7, 10, 1, 1}, now_);
  Allot(Only<CallJoin>());
  const CallJoin lost = Only<CallJoin>();
  session_.Abandon();
  session_.TakeActions();
  session_.Begin({7, 10, 1, 1}, now_);
  const CallJoin again = Only<CallJoin>();
  EXPECT_EQ(again.process_nonce, lost.process_nonce);
  EXPECT_FALSE(again.previous_attempt.has_value());
}

// A worker that abandoned a step learns that it was replaced, and does not take the rank back.
TEST_F(WorkerSessionAttemptTest, GivesWayForGoodToTheProcessThatTookItsRank) {
  ReachPush();
  session_.Abandon();
  session_.TakeActions();
  for (int i = 0; i < 2; ++i) {
    session_.Begin({7, 10, 1, 1}, now_);
    const CallJoin join = Only<CallJoin>();
    EXPECT_TRUE(join.previous_attempt.has_value());
    session_.OnJoin(join.call, absl::AbortedError("rank 3 was taken"), "", now_);
    EXPECT_EQ(StepError(), absl::AbortedError("rank 3 was taken"));
  }
}

TEST_F(WorkerSessionAttemptTest, TakesAnotherAttemptWhenItJoinsAfterGivingUp) {
  ReachPush();
  session_.Abandon();
  session_.TakeActions();
  session_.Join(now_);
  Allot(Only<CallJoin>());
  const CallJoin join = Only<CallJoin>();
  EXPECT_FALSE(join.previous_attempt.has_value());
  Allot(join);
  EXPECT_EQ(Only<JoinOver>().joined->process_nonce, join.process_nonce);
  session_.Begin({7, 10, 1, 1}, now_);
  EXPECT_EQ(Only<CallBegin>().process_nonce, join.process_nonce);
}

// The state of a checkpoint begins another timeline, so gradients of the old one are void.
TEST_F(WorkerSessionAttemptTest, AStepWhoseTimelineIsOverEndsAndSaysWhereTheJobGoesOn) {
  StepShare share;
  share.step = 41;
  share.timeline = 1;
  session_.Begin(share, now_);
  Joined joined = JoinedAs(AttemptOf(4));
  joined.applied_step = 30;
  joined.timeline = 2;
  session_.OnJoin(Only<CallJoin>().call, joined, "", now_);
  const StepOver over = Only<StepOver>();
  EXPECT_EQ(over.record.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(over.record.status().message(),
            "step 41 of timeline 1 begun, the job goes on from step 30 in timeline 2");
  ASSERT_TRUE(over.rewound.has_value());
  EXPECT_EQ(over.rewound->applied_step, 30u);
  EXPECT_TRUE(session_.idle());
  // The new timeline uses the attempt of the join.
  share.step = 31;
  share.timeline = 2;
  session_.Begin(share, now_);
  EXPECT_EQ(Only<CallBegin>().share.step, 31u);
}

}  // namespace
}  // namespace kaon::client
