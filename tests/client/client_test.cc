#include "client/kaon/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace kaon {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ClientTest, DescribesTheRegisteredJob) {
  const JobDescription& job = job_.description();
  EXPECT_EQ(job.definition.name, "small");
  EXPECT_EQ(job.routes.size(), 3u);
  EXPECT_EQ(job.timeline, 1u);
  EXPECT_THAT(job.shard_addresses, ElementsAre(cluster_.address()));
}

TEST_F(ClientTest, AttachesToAJobByName) {
  EXPECT_EQ(client_.Attach("small").value().description().definition.parameters.size(), 3u);
  EXPECT_EQ(client_.Attach("other").status().code(), StatusCode::kNotFound);
}

TEST_F(ClientTest, RefusesABadDefinitionBeforeAskingAnyone) {
  JobDefinition job = SmallJob();
  job.world_size = 0;
  const Status status = client_.Register(job).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("world_size"));
}

TEST_F(ClientTest, PushesGradientsAndReturnsTheDecision) {
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  FinishOptions finish;
  finish.loss = 1.5;
  Result<StepRecord> record = step.Finish(finish).Get();
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(record->step, 1u);
  EXPECT_TRUE(record->applied);
  EXPECT_EQ(record->grad_norm, 2.5);
  EXPECT_EQ(cluster_.Contribution(0, 0), Bytes(bias_));
  EXPECT_EQ(cluster_.Contribution(1, 0), Bytes(large_));
  ASSERT_EQ(cluster_.finishes().size(), 1u);
  EXPECT_EQ(cluster_.finishes()[0].loss(), 1.5);
  EXPECT_EQ(client_.transfer_totals().push_bytes, 4 * (4 + kLarge));
}

TEST_F(ClientTest, SettlesThePushWhenTheShardHasIt) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  EXPECT_TRUE(step.Push(1, View(large_)).Get().ok());
  EXPECT_EQ(cluster_.Contribution(1, 0), Bytes(large_));
}

TEST_F(ClientTest, TakesStepsOneAfterTheOther) {
  Worker worker = job_.Join(0).value();
  for (uint64_t number = 1; number <= 3; ++number) {
    BeginOptions begin;
    begin.step = number;
    Step step = worker.Begin(begin).value();
    (void)step.Push(0, View(bias_));
    FinishOptions finish;
    finish.missing_parameters = {1};
    Result<StepRecord> record = step.Finish(finish).Get();
    ASSERT_TRUE(record.ok()) << record.status().ToString();
    EXPECT_EQ(record->step, number);
  }
  EXPECT_THAT(cluster_.finishes()[2].missing_parameters(), ElementsAre(1u));
}

TEST_F(ClientTest, PushesMicroBatchesInOrder) {
  Worker worker = job_.Join(0).value();
  BeginOptions begin = First();
  begin.micro_batches = 2;
  Step step = worker.Begin(begin).value();
  EXPECT_THAT(step.Push(0, View(bias_), 1).Get().status().message(),
              AllOf(HasSubstr("micro-batch 1"), HasSubstr("expecting 0")));
  const std::vector<float> second = {5, 6, 7, 8};
  (void)step.Push(0, View(bias_), 0);
  (void)step.Push(0, View(second), 1);
  FinishOptions finish;
  finish.missing_parameters = {1};
  ASSERT_TRUE(step.Finish(finish).Get().ok());
  EXPECT_EQ(cluster_.Contribution(0, 0), Bytes(bias_));
  EXPECT_EQ(cluster_.Contribution(0, 1), Bytes(second));
}

TEST_F(ClientTest, ReportsASkippedStepWithItsReason) {
  cluster_.SetOutcome(v1::OUTCOME_SKIP, "non-finite gradient of parameter bias from rank 0");
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  Result<StepRecord> record = step.Finish().Get();
  ASSERT_TRUE(record.ok());
  EXPECT_FALSE(record->applied);
  EXPECT_THAT(record->reason, HasSubstr("parameter bias from rank 0"));
}

TEST_F(ClientTest, LoadsWeightsOnce) {
  Worker worker = job_.Join(0).value();
  const std::vector<float> frozen = {8, 9};
  EXPECT_TRUE(worker.LoadWeights({View(bias_), View(large_), View(frozen)}).Get().ok());
  EXPECT_EQ(cluster_.Contribution(2, 0), Bytes(frozen));
  EXPECT_EQ(worker.LoadWeights({View(bias_), View(large_), View(frozen)}).Get().status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, RefusesWeightsOfAWrongSizeAndCanLoadAgain) {
  Worker worker = job_.Join(0).value();
  const std::vector<float> frozen = {8, 9};
  const Status status = worker.LoadWeights({View(bias_), View(bias_), View(frozen)}).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("large: 4"), HasSubstr("expecting 600000")));
  EXPECT_TRUE(worker.LoadWeights({View(bias_), View(large_), View(frozen)}).Get().ok());
}

// Copies must have the initial weights of their original ([C2]).
TEST_F(ClientTest, RefusesACopyThatDiffersFromItsOriginalAndCanLoadAgain) {
  testing::FakeCluster cluster;
  ClientOptions options = Options();
  options.coordinators = {cluster.address()};
  JobDefinition definition = SmallJob();
  definition.parameters[2] = definition.parameters[0];
  definition.parameters[2].name = "copy";
  definition.parameters[2].tied_to = "bias";
  Client client = Connect(options);
  Job job = client.Register(definition).value();
  Worker worker = job.Join(0).value();
  std::vector<float> copy = {1, 2, 3, 5};
  const std::vector<TensorView> weights = {View(bias_), View(large_), View(copy)};
  const Status status = worker.LoadWeights(weights).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("copy"), HasSubstr("bias")));
  copy = bias_;
  EXPECT_TRUE(worker.LoadWeights(weights).Get().ok());
}

TEST_F(ClientTest, ReportsRefusedWeightsAsAnError) {
  cluster_.SetOutcome(v1::OUTCOME_SKIP, "non-finite weights");
  Worker worker = job_.Join(0).value();
  const std::vector<float> frozen = {8, 9};
  const Status status =
      worker.LoadWeights({View(bias_), View(large_), View(frozen)}).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "non-finite weights");
}

TEST_F(ClientTest, PullsIntoTheCallersMemory) {
  cluster_.SetWeight(0.75f);
  std::vector<float> large(kLarge), bias(4);
  const Result<Done> pulled = job_.Pull(0, {{1, {large.data(), kLarge, DType::kFloat32}},
                                            {0, {bias.data(), 4, DType::kFloat32}}})
                                  .Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status().ToString();
  EXPECT_EQ(large, std::vector<float>(kLarge, 0.75f));
  EXPECT_EQ(bias, std::vector<float>(4, 0.75f));
  EXPECT_EQ(client_.transfer_totals().pull_bytes, 4 * (4 + kLarge));
}

TEST_F(ClientTest, ReportsAPullWhoseChecksumDoesNotMatchAsDataLoss) {
  cluster_.CorruptPulls(true);
  std::vector<float> bias(4);
  const Status status = job_.Pull(0, {{0, {bias.data(), 4, DType::kFloat32}}}).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  EXPECT_FALSE(status.retriable());
}

TEST_F(ClientTest, RefusesPullTargetsNamingBothSizes) {
  std::vector<float> bias(5);
  const Status status = job_.Pull(0, {{0, {bias.data(), 5, DType::kFloat32}}}).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("bias"), HasSubstr("5"), HasSubstr("expecting 4")));
}

TEST_F(ClientTest, RefusesToPullAParameterTwice) {
  std::vector<float> bias(4);
  const MutableTensorView into = {bias.data(), 4, DType::kFloat32};
  EXPECT_EQ(job_.Pull(0, {{0, into}, {0, into}}).Get().status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, PullsAgainWhatIsNotThereYetOrItsConnectionLost) {
  std::vector<float> bias(4);
  const PullTarget target = {0, {bias.data(), 4, DType::kFloat32}};
  cluster_.FailPulls(3, absl::UnavailableError("step 1 is not planned"));
  EXPECT_TRUE(job_.Pull(1, {target}).Get().ok());
  // Nothing to look into.
  EXPECT_EQ(client_.transfer_totals().retries, 0u);
  cluster_.LosePulls(2, grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed"));
  EXPECT_TRUE(job_.Pull(1, {target}).Get().ok());
  EXPECT_EQ(client_.transfer_totals().retries, 2u);
}

TEST_F(ClientTest, DoesNotPullAgainWhatIsGone) {
  cluster_.FailPulls(1, absl::FailedPreconditionError("step 0 pulled, applied 7"));
  std::vector<float> bias(4);
  const Status status = job_.Pull(0, {{0, {bias.data(), 4, DType::kFloat32}}}).Get().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("step 0 pulled, applied 7"));
}

TEST_F(ClientTest, EndsAPullAtItsDeadline) {
  Reconnect(milliseconds(100));
  cluster_.HoldPulls(true);
  std::vector<float> bias(4);
  EXPECT_EQ(job_.Pull(0, {{0, {bias.data(), 4, DType::kFloat32}}}).Get().status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, CancelsAPull) {
  cluster_.HoldPulls(true);
  std::vector<float> bias(4);
  Future<Done> pulled = job_.Pull(0, {{0, {bias.data(), 4, DType::kFloat32}}});
  pulled.Cancel();
  EXPECT_EQ(pulled.Get().status().code(), StatusCode::kCancelled);
}

TEST_F(ClientTest, PushesAgainUntilTheShardHasAPlan) {
  cluster_.FailPushes(3, absl::UnavailableError("no plan yet"));
  Worker worker = job_.Join(0).value();
  Step step = PushedStep(worker);
  EXPECT_TRUE(step.Finish().Get().ok());
  EXPECT_EQ(cluster_.num_pushes(), 4);
}

TEST_F(ClientTest, SendsNoMoreThanTheShardGranted) {
  constexpr uint64_t kWindow = 1 << 19;
  cluster_.SetCreditWindow(kWindow);
  cluster_.HoldCredits(true);
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  Future<Done> pushed = step.Push(1, View(large_));
  cluster_.AwaitReceivedBytes(kWindow);
  // Bytes beyond the window would have arrived before this answer.
  ASSERT_TRUE(job_.Refresh().ok());
  EXPECT_EQ(client_.transfer_totals().push_bytes, kWindow);
  EXPECT_FALSE(pushed.Ready());
  cluster_.HoldCredits(false);
  EXPECT_TRUE(pushed.Get().ok());
  EXPECT_EQ(cluster_.Contribution(1, 0), Bytes(large_));
}

TEST_F(ClientTest, KeepsNoMoreThanItsLimitInFlight) {
  ClientOptions options = Options();
  options.max_bytes_in_flight = 1 << 20;
  client_ = Connect(options);
  job_ = client_.Register(SmallJob()).value();
  cluster_.SetCreditWindow(2 << 20);
  cluster_.HoldCredits(true);
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  Future<Done> pushed = step.Push(1, View(large_));
  cluster_.AwaitReceivedBytes(1 << 20);
  ASSERT_TRUE(job_.Refresh().ok());
  EXPECT_EQ(client_.transfer_totals().push_bytes, uint64_t{1} << 20);
  EXPECT_FALSE(pushed.Ready());
}

TEST_F(ClientTest, TakesDifferentTensorsFromTwoThreads) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  std::thread other([&] { (void)step.Push(0, View(bias_)); });
  (void)step.Push(1, View(large_));
  other.join();
  ASSERT_TRUE(step.Finish().Get().ok());
  EXPECT_EQ(cluster_.Contribution(0, 0), Bytes(bias_));
  EXPECT_EQ(cluster_.Contribution(1, 0), Bytes(large_));
}

TEST_F(ClientTest, RefusesAWrongSizeAtOnceNamingBoth) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  Future<Done> pushed = step.Push(0, View({1, 2, 3}));
  ASSERT_TRUE(pushed.Ready());
  const Status status = pushed.Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "parameter bias: 3 elements pushed, expecting 4");
}

TEST_F(ClientTest, RefusesGradientsOfUnknownAndFrozenParameters) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  EXPECT_THAT(step.Push(3, View(bias_)).Get().status().message(),
              HasSubstr("parameter_id is 3, job small has 3"));
  EXPECT_THAT(step.Push(2, View({1, 2})).Get().status().message(), HasSubstr("frozen"));
}

TEST_F(ClientTest, RefusesAGradientThatWasPushedBefore) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  (void)step.Push(0, View(bias_));
  EXPECT_EQ(step.Push(0, View(bias_)).Get().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, KeepsTheStepOpenWhenAGradientIsMissing) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  (void)step.Push(0, View(bias_));
  const Status status = step.Finish().Get().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("parameter large: 0 of 1"));
  (void)step.Push(1, View(large_));
  EXPECT_TRUE(step.Finish().Get().ok());
}

TEST_F(ClientTest, RefusesASecondOpenStep) {
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  const Status status = worker.Begin(First()).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("step 1 is open"));
}

TEST_F(ClientTest, RefusesAStepOutOfTurnNamingBoth) {
  Worker worker = job_.Join(0).value();
  BeginOptions begin = First();
  begin.step = 9;
  const Status status = worker.Begin(begin).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "step 9 begun, expecting 1");
}

TEST_F(ClientTest, RefusesARankOutsideOfTheWorld) {
  EXPECT_EQ(job_.Join(1).status().message(), "rank is 1, must be 0 .. 0");
}

TEST_F(ClientTest, FollowsTheHolderNamedInARefusal) {
  testing::FakeCluster bystander;
  bystander.RedirectTo(cluster_.address());
  ClientOptions options = Options();
  options.coordinators = {bystander.address()};
  Client client = Connect(options);
  Job job = client.Attach("small").value();
  Worker worker = job.Join(0).value();
  Step step = PushedStep(worker);
  EXPECT_TRUE(step.Finish().Get().ok());
}

TEST_F(ClientTest, TriesTheNextCoordinatorWhenOneIsGone) {
  ClientOptions options = Options();
  options.coordinators = {"127.0.0.1:1", cluster_.address()};
  Client client = Connect(options);
  EXPECT_TRUE(client.Attach("small").ok());
  EXPECT_GE(client.transfer_totals().retries, 1u);
}

// One that was frozen since before the registration answers so until it hears that it was replaced.
TEST_F(ClientTest, BelievesThatThereIsNoJobOnlyWhenEveryCoordinatorSaysSo) {
  testing::FakeCluster frozen;
  ClientOptions options = Options();
  options.coordinators = {frozen.address(), cluster_.address()};
  Client client = Connect(options);
  EXPECT_TRUE(client.Attach("small").ok());
  EXPECT_EQ(client.Attach("other").status().code(), StatusCode::kNotFound);
}

TEST_F(ClientTest, DoesNotGoBackToWhatAnOutdatedCoordinatorTells) {
  Worker worker = job_.Join(0).value();
  ASSERT_TRUE(PushedStep(worker).Finish().Get().ok());
  // The outdated coordinator's cluster has trained nothing.
  testing::FakeCluster outdated;
  ClientOptions options = Options();
  options.coordinators = {outdated.address()};
  ASSERT_TRUE(Connect(options).Register(SmallJob()).ok());
  cluster_.RedirectTo(outdated.address());
  BeginOptions begin;
  begin.step = 3;
  EXPECT_EQ(worker.Begin(begin).status().message(), "step 3 begun, expecting 2");
  cluster_.RedirectTo("");
  begin.step = 2;
  EXPECT_TRUE(worker.Begin(begin).ok());
}

TEST_F(ClientTest, EndsACallAtItsDeadlineWithTheLastError) {
  ClientOptions options = Options();
  options.call_deadline = milliseconds(200);
  auto gone = std::make_unique<testing::FakeCluster>();
  options.coordinators = {gone->address()};
  Client client = Connect(options);
  gone.reset();
  const Status status = client.Attach("small").status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr(options.coordinators[0] + ": UNAVAILABLE"));
  // The client tries at once, and retries after delays of at least 10, 20, 40 and 80 ms.
  EXPECT_LE(client.transfer_totals().retries, 5u);
}

TEST_F(ClientTest, RefusesCallsAfterTheClientIsGone) {
  Client gone = Connect(Options());
  Job job = gone.Attach("small").value();
  { const Client end = std::move(gone); }
  EXPECT_EQ(job.Refresh().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(job.Join(0).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, RefusesToWorkInAForkedChild) {
  const pid_t child = fork();
  if (child == 0) {
    const Status refused = client_.Attach("small").status();
    _exit(refused.code() == StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace kaon
