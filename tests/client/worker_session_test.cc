#include "client/worker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/worker_session_fixture.h"

namespace kaon::client {
namespace {

using ::testing::Eq;
using ::testing::IsEmpty;

TEST_F(WorkerSessionTest, JoinsThenBeginsThenAwaits) {
  session_.Begin({7, 10, 2, 0.5}, now_);
  const CallJoin join = Only<CallJoin>();
  EXPECT_EQ(join.coordinator, "a:1");
  EXPECT_FALSE(join.previous_attempt.has_value());
  session_.OnJoin(join.call, JoinedAs(AttemptOf(4)), "", now_);
  const CallBegin begin = Only<CallBegin>();
  EXPECT_EQ(begin.attempt.ballot().counter(), 4u);
  EXPECT_EQ(begin.share.step, 7u);
  EXPECT_EQ(begin.share.micro_batches, 2u);
  session_.OnBegin(begin.call, std::nullopt, "", now_);
  EXPECT_EQ(Only<CallAwait>().step, 7u);
}

TEST_F(WorkerSessionTest, JoinsWithoutAStepWhenAsked) {
  session_.Join(now_);
  Joined joined = JoinedAs(AttemptOf(4));
  joined.applied_step = 41;
  session_.OnJoin(Only<CallJoin>().call, joined, "", now_);
  const std::vector<JoinOver> over = All<JoinOver>();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].joined->applied_step, 41u);
  EXPECT_TRUE(session_.idle());
}

TEST_F(WorkerSessionTest, PushesToEveryShardOncePlanned) {
  const std::vector<StartPush> pushes = ReachPush();
  ASSERT_EQ(pushes.size(), 2u);
  EXPECT_EQ(pushes[0].shard, 0u);
  EXPECT_EQ(pushes[1].shard, 1u);
  EXPECT_EQ(pushes[1].round, 1u);
  EXPECT_EQ(pushes[1].attempt.ballot().counter(), 4u);
}

TEST_F(WorkerSessionTest, RestartsEveryPushForANewerRound) {
  const std::vector<StartPush> old = ReachPush();
  session_.OnPushEnded(old[0].call, 0, absl::OkStatus(), now_);
  session_.OnEvent(await_, Plan(4, 2), now_);
  std::vector<uint64_t> cancelled;
  std::vector<StartPush> pushes;
  for (SessionAction& action : session_.TakeActions()) {
    if (auto* cancel = std::get_if<CancelCalls>(&action)) cancelled = cancel->calls;
    if (auto* push = std::get_if<StartPush>(&action)) pushes.push_back(*push);
  }
  EXPECT_EQ(cancelled, std::vector<uint64_t>{old[1].call});
  ASSERT_EQ(pushes.size(), 2u);
  EXPECT_EQ(pushes[0].round, 2u);
}

TEST_F(WorkerSessionTest, IgnoresAPlanThatIsNotNewer) {
  ReachPush();
  session_.OnEvent(await_, Plan(4, 1), now_);
  session_.OnEvent(await_, Plan(3, 9), now_);
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
}

TEST_F(WorkerSessionTest, ComparesBallotsBeforeRounds) {
  ReachPush();
  session_.OnEvent(await_, Plan(5, 1), now_);
  EXPECT_EQ(All<StartPush>().size(), 2u);
}

TEST_F(WorkerSessionTest, IgnoresResultsOfPushesItReplaced) {
  const std::vector<StartPush> old = ReachPush();
  session_.OnEvent(await_, Plan(4, 2), now_);
  session_.TakeActions();
  session_.OnPushEnded(old[0].call, 0, absl::DataLossError("bad"), now_);
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
  EXPECT_FALSE(session_.idle());
}

TEST_F(WorkerSessionTest, RetriesAPushToTheSameShardAfterADoublingDelay) {
  StartPush push = ReachPush()[1];
  absl::Duration shortest = Options().first_push_backoff / 2;
  for (int i = 0; i < 4; ++i) {
    session_.OnPushEnded(push.call, 1, absl::UnavailableError("no plan yet"), now_);
    const absl::Time at = Only<WakeAt>().at;
    EXPECT_GE(at - now_, shortest);
    EXPECT_LT(at - now_, 2 * shortest);
    session_.Tick(at - absl::Nanoseconds(1));
    EXPECT_THAT(session_.TakeActions(), IsEmpty());
    now_ = at;
    session_.Tick(now_);
    push = Only<StartPush>();
    EXPECT_EQ(push.shard, 1u);
    shortest *= 2;
  }
}

TEST_F(WorkerSessionTest, RetriesAPushForEachCodeThatMayPass) {
  const std::vector<absl::Status> passing = {
      absl::UnavailableError(""), absl::AbortedError(""), absl::ResourceExhaustedError(""),
      absl::DeadlineExceededError(""), absl::CancelledError("")};
  StartPush push = ReachPush()[0];
  for (const absl::Status& status : passing) {
    session_.OnPushEnded(push.call, 0, status, now_);
    now_ = Only<WakeAt>().at;
    session_.Tick(now_);
    push = Only<StartPush>();
  }
  EXPECT_FALSE(session_.idle());
}

TEST_F(WorkerSessionTest, BelievesAShardThatItHoldsNoJobOnlyWhenItSaysSoAgainAndAgain) {
  const absl::Status unknown = absl::NotFoundError("job 'tiny' pushed, this shard holds none");
  const absl::Time first = now_;
  session_.OnPushEnded(ReachPush()[0].call, 0, unknown, now_);
  while (now_ - first < absl::Seconds(4)) {
    now_ = Only<WakeAt>().at;
    session_.Tick(now_);
    session_.OnPushEnded(Only<StartPush>().call, 0, unknown, now_);
  }
  while (!session_.idle() && now_ - first < absl::Seconds(20)) {
    now_ = Only<WakeAt>().at;
    session_.Tick(now_);
    session_.OnPushEnded(Only<StartPush>().call, 0, unknown, now_);
  }
  EXPECT_EQ(StepError(), absl::NotFoundError(absl::StrCat("shard 0: ", unknown.message())));
}

TEST_F(WorkerSessionTest, EndsTheStepForAPushThatCanNeverSucceedAndNamesTheShard) {
  const std::vector<absl::Status> fatal = {
      absl::InvalidArgumentError("x"), absl::AlreadyExistsError("x"), absl::DataLossError("x"),
      absl::PermissionDeniedError("x"), absl::InternalError("x")};
  for (const absl::Status& status : fatal) {
    session_.OnPushEnded(ReachPush()[1].call, 1, status, now_);
    EXPECT_EQ(StepError(), absl::Status(status.code(), "shard 1: x"));
    EXPECT_TRUE(session_.idle());
  }
}

TEST_F(WorkerSessionTest, WaitsForTheDecisionWhenAShardIsPastTheStep) {
  const std::vector<StartPush> pushes = ReachPush();
  session_.OnPushEnded(pushes[0].call, 0, absl::FailedPreconditionError("step 7, applied 7"), now_);
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
  session_.Tick(now_ + absl::Hours(1));
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
  session_.OnEvent(await_, RecordOf(7), now_);
  EXPECT_TRUE(StepError().ok());
}

TEST_F(WorkerSessionTest, EndsTheStepWithTheRecordAndCancelsWhatIsOpen) {
  const std::vector<StartPush> pushes = ReachPush();
  session_.OnEvent(await_, RecordOf(7), now_);
  std::set<uint64_t> cancelled;
  uint64_t step = 0;
  for (SessionAction& action : session_.TakeActions()) {
    if (auto* cancel = std::get_if<CancelCalls>(&action)) {
      cancelled.insert(cancel->calls.begin(), cancel->calls.end());
    }
    if (auto* over = std::get_if<StepOver>(&action)) step = over->record->plan().step().step();
  }
  EXPECT_EQ(step, 7u);
  EXPECT_EQ(cancelled, (std::set<uint64_t>{await_, pushes[0].call, pushes[1].call}));
}

TEST_F(WorkerSessionTest, EndsTheStepWhenBeginAnswersWithTheRecord) {
  session_.Begin({7, 10, 1, 1}, now_);
  session_.OnJoin(Only<CallJoin>().call, JoinedAs(AttemptOf(4)), "", now_);
  session_.OnBegin(Only<CallBegin>().call, RecordOf(7), "", now_);
  EXPECT_TRUE(StepError().ok());
}

TEST_F(WorkerSessionTest, BacksOffWhenTwoCoordinatorsSendItToAndFro) {
  session_.Begin({7, 10, 1, 1}, now_);
  const absl::Status refusal = absl::FailedPreconditionError("not the holder");
  session_.OnJoin(Only<CallJoin>().call, refusal, "b:1", now_);
  session_.OnJoin(Only<CallJoin>().call, refusal, "a:1", now_);
  EXPECT_GT(Only<WakeAt>().at, now_);
}

TEST_F(WorkerSessionTest, RotatesThroughTheCoordinatorsWithBackoff) {
  session_.Begin({7, 10, 1, 1}, now_);
  std::vector<std::string> tried;
  for (int i = 0; i < 4; ++i) {
    const CallJoin join = Only<CallJoin>();
    tried.push_back(join.coordinator);
    session_.OnJoin(join.call, absl::UnavailableError("down"), "", now_);
    const absl::Time at = Only<WakeAt>().at;
    EXPECT_GT(at, now_);
    now_ = at;
    session_.Tick(now_);
  }
  EXPECT_EQ(tried, (std::vector<std::string>{"a:1", "b:1", "a:1", "b:1"}));
}

TEST_F(WorkerSessionTest, NeverWaitsLongerThanTheLargestBackoff) {
  session_.Begin({7, 10, 1, 1}, now_);
  for (int i = 0; i < 40; ++i) {
    session_.OnJoin(Only<CallJoin>().call, absl::UnavailableError("down"), "", now_);
    const absl::Time at = Only<WakeAt>().at;
    ASSERT_LE(at - now_, Options().max_backoff);
    now_ = at;
    session_.Tick(now_);
  }
}

TEST_F(WorkerSessionTest, KeepsPushingWhileItLooksForACoordinator) {
  const std::vector<StartPush> pushes = ReachPush();
  session_.OnAwaitEnded(await_, absl::UnavailableError("down"), "", now_);
  EXPECT_THAT(All<CancelCalls>(), IsEmpty());
  session_.OnPushEnded(pushes[0].call, 0, absl::UnavailableError("reset"), now_);
  session_.Tick(Only<WakeAt>().at);
  EXPECT_THAT(session_.attempt()->ballot().counter(), Eq(4u));
}

TEST_F(WorkerSessionTest, AwaitsAgainAfterAnEndWithoutADecision) {
  session_.OnAwaitEnded(ReachAwait(), absl::OkStatus(), "", now_);
  now_ = Only<WakeAt>().at;
  session_.Tick(now_);
  EXPECT_TRUE(Only<CallJoin>().previous_attempt.has_value());
}

// A coordinator that was frozen since before the registration answers so until it learns that it is
// replaced.
TEST_F(WorkerSessionTest, BelievesThatThereIsNoJobOnlyWhenItIsSaidAgainAndAgain) {
  session_.Begin({7, 10, 1, 1}, now_);
  const absl::Status unknown = absl::NotFoundError("job \"tiny\": no job is registered");
  for (int i = 0; i < 10; ++i) {
    session_.OnJoin(Only<CallJoin>().call, unknown, "", now_);
    now_ = Only<WakeAt>().at;
    session_.Tick(now_);
  }
  session_.OnJoin(Only<CallJoin>().call, unknown, "", now_);
  EXPECT_EQ(StepError(), unknown);
}

TEST_F(WorkerSessionTest, DoesNotCountOtherFailuresAsSayingThatThereIsNoJob) {
  session_.Begin({7, 10, 1, 1}, now_);
  for (int i = 0; i < 30; ++i) {
    session_.OnJoin(Only<CallJoin>().call, absl::UnavailableError("down"), "", now_);
    now_ = Only<WakeAt>().at;
    session_.Tick(now_);
  }
  session_.OnJoin(Only<CallJoin>().call, absl::NotFoundError("no job is registered"), "", now_);
  EXPECT_GT(Only<WakeAt>().at, now_);
  EXPECT_FALSE(session_.idle());
}

TEST_F(WorkerSessionTest, EndsTheStepForARefusalThatNamesNoHolder) {
  session_.Begin({7, 10, 1, 1}, now_);
  session_.OnJoin(Only<CallJoin>().call, JoinedAs(AttemptOf(4)), "", now_);
  const absl::Status refusal = absl::FailedPreconditionError("step 7 begun, expecting 5");
  session_.OnBegin(Only<CallBegin>().call, refusal, "", now_);
  EXPECT_EQ(StepError(), refusal);
}

TEST_F(WorkerSessionTest, EndsTheStepWhenTheJobStopped) {
  session_.OnAwaitEnded(ReachAwait(), absl::DataLossError("shard 1 lost its state"), "", now_);
  EXPECT_EQ(StepError(), absl::DataLossError("shard 1 lost its state"));
}

TEST_F(WorkerSessionTest, IgnoresAnswersToCallsItGaveUp) {
  const uint64_t await = ReachAwait();
  session_.OnAwaitEnded(await, absl::FailedPreconditionError("not the holder"), "c:1", now_);
  session_.TakeActions();
  session_.OnEvent(await, RecordOf(7), now_);
  session_.OnAwaitEnded(await, absl::DataLossError("late"), "", now_);
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
}

TEST_F(WorkerSessionTest, ForgetsPlansOfEarlierSteps) {
  ReachPush();
  session_.OnEvent(await_, RecordOf(7), now_);
  session_.TakeActions();
  session_.Begin({8, 10, 1, 1}, now_);
  session_.OnBegin(Only<CallBegin>().call, std::nullopt, "", now_);
  session_.OnEvent(Only<CallAwait>().call, Plan(4, 1), now_);
  const std::vector<StartPush> pushes = All<StartPush>();
  ASSERT_EQ(pushes.size(), 2u);
  EXPECT_EQ(pushes[0].step, 8u);
}

TEST_F(WorkerSessionTest, CancelsItsCallsWhenAbandoned) {
  const std::vector<StartPush> pushes = ReachPush();
  session_.Abandon();
  const std::vector<SessionAction> actions = session_.TakeActions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<CancelCalls>(actions[0]).calls.size(), 3u);
  EXPECT_TRUE(session_.idle());
  session_.OnPushEnded(pushes[0].call, 0, absl::CancelledError(""), now_);
  session_.Tick(now_ + absl::Hours(1));
  EXPECT_THAT(session_.TakeActions(), IsEmpty());
}

}  // namespace
}  // namespace kaon::client
