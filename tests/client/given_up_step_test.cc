// Steps that end without their record, and the steps after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "tests/client/client_fixture.h"

namespace kaon {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

using GivenUpStepTest = ClientTest;

TEST_F(GivenUpStepTest, EndsTheStepWithTheShardsRefusal) {
  cluster_.FailPushes(1, absl::AlreadyExistsError("parameter bias, offset 0 with other bytes"));
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  const Status status = step.Finish().Get().status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("parameter bias, offset 0"));
}

TEST_F(GivenUpStepTest, EndsAStepAtItsDeadline) {
  Reconnect(milliseconds(100));
  cluster_.HoldDecisions(true);
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  const Status status = step.Finish().Get().status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("step 1"));
  EXPECT_TRUE(status.retriable());
}

// A caller that waits for a push before Finish must not wait forever (P13).
TEST_F(GivenUpStepTest, EndsAPushAtTheDeadlineOfItsStep) {
  Reconnect(milliseconds(100));
  cluster_.FailPushes(1000000, absl::UnavailableError("the shard is away"));
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  const Status pushed = step.Push(0, View(bias_)).Get().status();
  EXPECT_EQ(pushed.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(pushed.message(), HasSubstr("step 1 was not finished within 100ms"));
  EXPECT_EQ(step.Push(1, View(large_)).Get().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(step.Finish().Get().status().code(), StatusCode::kDeadlineExceeded);
  Reconnect(milliseconds(20000));
  cluster_.FailPushes(0, absl::OkStatus());
  Worker again = job_.Join(0).value();
  EXPECT_TRUE(PushedStep(again).Finish().Get().ok());
}

TEST_F(GivenUpStepTest, CountsTheDeadlineAnewFromFinish) {
  constexpr milliseconds kDeadline(2000);
  Reconnect(kDeadline);
  cluster_.HoldDecisions(true);
  cluster_.HoldPulls(true);
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  // The pull waits, so that some of the deadline passes.
  std::vector<float> bias(4);
  Future<Done> pulled = job_.Pull(0, {{0, {bias.data(), 4, DType::kFloat32}}});
  EXPECT_FALSE(pulled.WaitFor(milliseconds(100)));
  pulled.Cancel();
  EXPECT_FALSE(pulled.Get().ok());
  const auto finished_at = std::chrono::steady_clock::now();
  const Status status = step.Finish().Get().status();
  EXPECT_GE(std::chrono::steady_clock::now() - finished_at, kDeadline);
  EXPECT_THAT(
      status.message(),
      HasSubstr("step 1 was not decided within 2s: waited for the decision of coordinator"));
}

TEST_F(GivenUpStepTest, CancelsAStepAndCanBeginItAgain) {
  cluster_.HoldDecisions(true);
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  ASSERT_TRUE(step.Push(0, View(bias_)).Get().ok());
  ASSERT_TRUE(step.Push(1, View(large_)).Get().ok());
  Future<StepRecord> finished = step.Finish();
  finished.Cancel();
  EXPECT_EQ(finished.Get().status().code(), StatusCode::kCancelled);
  cluster_.HoldDecisions(false);
  // The step is retried with other data.
  bias_.back() = 8;
  large_.back() = 8;
  Step again = PushedStep(worker);
  EXPECT_TRUE(again.Finish().Get().ok());
  EXPECT_EQ(cluster_.Contribution(0, 0), Bytes(bias_));
  EXPECT_TRUE(cluster_.Contribution(1, 0) == Bytes(large_));
}

TEST_F(GivenUpStepTest, LoadsOtherWeightsAfterALoadThatWasCancelled) {
  cluster_.HoldDecisions(true);
  Worker worker = job_.Join(0).value();
  std::vector<float> frozen = {8, 9};
  Future<Done> loaded = worker.LoadWeights({View(bias_), View(large_), View(frozen)});
  cluster_.AwaitReceivedBytes(4 * (4 + kLarge + 2));
  loaded.Cancel();
  EXPECT_EQ(loaded.Get().status().code(), StatusCode::kCancelled);
  cluster_.HoldDecisions(false);
  frozen = {10, 11};
  EXPECT_TRUE(worker.LoadWeights({View(bias_), View(large_), View(frozen)}).Get().ok());
  EXPECT_EQ(cluster_.Contribution(2, 0), Bytes(frozen));
}

TEST_F(GivenUpStepTest, CancelsWhatIsOpenWhenTheClientGoes) {
  cluster_.HoldDecisions(true);
  Future<StepRecord> finished;
  {
    Client client = Connect(Options());
    Job job = client.Attach("small").value();
    Worker worker = job.Join(0).value();
    Step step = PushedStep(worker);
    finished = step.Finish();
  }
  ASSERT_TRUE(finished.Ready());
  EXPECT_EQ(finished.Get().status().code(), StatusCode::kCancelled);
}

TEST_F(GivenUpStepTest, GivesTheTensorsBackWhenAStepIsDropped) {
  Worker worker = job_.Join(0).value();
  { const Step dropped = PushedStep(worker); }
  Step step = PushedStep(worker);
  EXPECT_TRUE(step.Finish().Get().ok());
}

}  // namespace
}  // namespace kaon
