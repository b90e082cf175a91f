// The public client against real servers in one process. For any number of shards and workers the
// weights equal those of a plain loop over the kernels, bit for bit. A replaced coordinator loses
// nothing, and malformed requests change nothing.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/kaon/client.h"
#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/coordinator.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "tests/integration/tiny_training.h"
#include "tests/simulation/model.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon {
namespace {

using simulation::SerialReplay;
using simulation::TinyJob;
using testing::BeginStep;
using testing::kNonce;
using testing::LoadedReplay;
using testing::LoadWeights;
using testing::OpenStep;
using testing::PublicJob;
using testing::PullAll;
using testing::RecordOf;
using testing::TrainStep;

// Step 7 holds a NaN and is skipped.
constexpr uint64_t kSteps = 9;

// One rank's whole training; returns its records.
std::vector<StepRecord> TrainRank(const testing::InProcessCluster& cluster,
                                  const v1::JobDefinition& job, uint32_t rank) {
  Client client = cluster.Connect();
  Result<Job> registered = client.Register(PublicJob(job));
  EXPECT_TRUE(registered.ok()) << registered.status().ToString();
  Result<Worker> worker = registered->Join(rank);
  EXPECT_TRUE(worker.ok()) << worker.status().ToString();
  if (rank == 0) LoadWeights(job, *worker);
  // Version 0 exists once rank 0 has loaded it; a pull waits for it.
  PullAll(job, *registered, 0);
  std::vector<StepRecord> records;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    records.push_back(TrainStep(job, *worker, step));
  }
  return records;
}

// Trains to the end on every rank and compares the weights with the serial run.
void TrainAndCompare(testing::InProcessCluster& cluster, uint32_t num_workers) {
  const v1::JobDefinition job = TinyJob(num_workers);
  std::vector<std::vector<StepRecord>> records(num_workers);
  std::vector<std::thread> workers;
  for (uint32_t rank = 0; rank < num_workers; ++rank) {
    workers.emplace_back([&, rank] { records[rank] = TrainRank(cluster, job, rank); });
  }
  for (std::thread& worker : workers) worker.join();

  SerialReplay replay = LoadedReplay(job);
  bool clipped = false;
  for (const StepRecord& record : records[0]) {
    if (record.step == 7) {
      EXPECT_FALSE(record.applied);
      EXPECT_THAT(record.reason, ::testing::HasSubstr("embed.weight"));
      EXPECT_THAT(record.reason, ::testing::HasSubstr("rank 0"));
      continue;
    }
    ASSERT_TRUE(record.applied) << record.reason;
    clipped = clipped || record.norms[1].clip_factor < 1;
    EXPECT_EQ(record.norms[0].clip_factor, 1);
    replay.Apply(RecordOf(job, record));
  }
  EXPECT_TRUE(clipped);
  Client reader = cluster.Connect();
  Result<Job> attached = reader.Attach(job.name());
  ASSERT_TRUE(attached.ok()) << attached.status().ToString();
  EXPECT_EQ(PullAll(job, *attached, kSteps), replay.weights());
}

class ServiceTest : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(ServiceTest, EndsInTheWeightsOfTheSerialRun) {
  testing::InProcessCluster cluster(GetParam().first);
  TrainAndCompare(cluster, GetParam().second);
}

// The job has five parameters: with seven shards some own none.
INSTANTIATE_TEST_SUITE_P(ShardsAndWorkers, ServiceTest,
                         ::testing::Values(std::pair(1, 1), std::pair(2, 2), std::pair(3, 1),
                                           std::pair(3, 3), std::pair(7, 2)));

// A step that ended without its record is retried with another gradient and another weight (P3).
// The shards discard what they have of the first try.
TEST(ServiceTest, AStepThatWasGivenUpIsSummedFromItsNewGradientAlone) {
  testing::InProcessCluster cluster(2);
  const v1::JobDefinition job = TinyJob(2);
  Client client = cluster.Connect();
  Result<Job> registered = client.Register(PublicJob(job));
  ASSERT_TRUE(registered.ok()) << registered.status().ToString();
  Result<Worker> worker = registered->Join(0);
  Result<Worker> other = registered->Join(1);
  ASSERT_TRUE(worker.ok() && other.ok());
  LoadWeights(job, *worker);
  PullAll(job, *registered, 0);
  SerialReplay replay = LoadedReplay(job);
  // Half pushed and dropped; all of it pushed with another weight, finished and cancelled.
  for (const uint64_t number : {1, 2}) {
    SCOPED_TRACE(number);
    OpenStep of_other = BeginStep(job, *other, number);
    {
      OpenStep given_up = BeginStep(job, *worker, number, kNonce + 1, number == 1 ? 0 : 5);
      EXPECT_TRUE(given_up.PushAndWait(number == 1 ? 2 : 0));
      if (number == 2) {
        Future<StepRecord> finished = given_up.Finish();
        finished.Cancel();
        EXPECT_EQ(finished.Get().status().code(), StatusCode::kCancelled);
      }
    }
    OpenStep again = BeginStep(job, *worker, number);
    // Before this step has a plan, the other rank's gradient would complete the abandoned step.
    EXPECT_TRUE(again.PushAndWait(0));
    of_other.PushAll();
    Future<StepRecord> decided = again.Finish();
    Result<StepRecord> record = of_other.Finish().Get();
    ASSERT_TRUE(record.ok()) << record.status().ToString();
    ASSERT_TRUE(decided.Get().ok());
    replay.Apply(RecordOf(job, *record));
  }
  EXPECT_EQ(PullAll(job, *registered, 2), replay.weights());
}

TEST(ServiceTest, AReplacedCoordinatorLosesNothing) {
  testing::InProcessCluster cluster(2);
  const v1::JobDefinition job = TinyJob(1);
  Client client = cluster.Connect();
  Result<Job> registered = client.Register(PublicJob(job));
  ASSERT_TRUE(registered.ok()) << registered.status().ToString();
  cluster.ReplaceCoordinator();
  std::vector<StepRecord> records = TrainRank(cluster, job, 0);
  EXPECT_EQ(records.size(), kSteps);
  cluster.ReplaceCoordinator();
  Result<JobDescription> description = registered->Refresh();
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  EXPECT_EQ(description->applied_step, kSteps);
  EXPECT_TRUE(description->weights_loaded);
}

// Digests of every shard's state.
std::vector<uint64_t> StateDigests(const testing::InProcessCluster& cluster, int num_shards) {
  std::vector<uint64_t> digests;
  for (int i = 0; i < num_shards; ++i) {
    auto stub = v1::ShardControl::NewStub(
        grpc::CreateChannel(cluster.shard_address(i), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::DescribeShardResponse response;
    const grpc::Status status = stub->DescribeShard(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    digests.push_back(response.state_digest());
  }
  return digests;
}

// The newest step is decided before every shard has applied it; its weights can be pulled after.
void WaitUntilApplied(const testing::InProcessCluster& cluster, const v1::JobDefinition& job) {
  Client reader = cluster.Connect();
  Result<Job> attached = reader.Attach(job.name());
  ASSERT_TRUE(attached.ok()) << attached.status().ToString();
  PullAll(job, *attached, kSteps);
}

TEST(ServiceTest, MalformedRequestsToTheCoordinatorLeaveTheStateDigestAlone) {
  testing::InProcessCluster cluster(2);
  const v1::JobDefinition job = TinyJob(1);
  TrainRank(cluster, job, 0);
  WaitUntilApplied(cluster, job);
  const std::vector<uint64_t> before = StateDigests(cluster, 2);
  const auto channel =
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials());
  const auto stub = v1::Coordinator::NewStub(channel);
  const auto expect = [](const grpc::Status& status, grpc::StatusCode code, const char* what) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(what));
  };
  {
    grpc::ClientContext context;
    v1::RegisterJobRequest request;
    *request.mutable_definition() = job;
    request.mutable_definition()->mutable_groups(0)->set_lr(0.5);
    v1::JobDescription response;
    expect(stub->RegisterJob(&context, request, &response), grpc::ALREADY_EXISTS, "lr");
  }
  {
    grpc::ClientContext context;
    v1::JoinWorkerRequest request;
    request.set_job(job.name());
    request.set_rank(4);
    request.set_process_nonce(1);
    v1::JoinWorkerResponse response;
    expect(stub->JoinWorker(&context, request, &response), grpc::INVALID_ARGUMENT, "rank");
  }
  {
    grpc::ClientContext context;
    v1::BeginStepRequest request;
    request.set_job("other");
    v1::BeginStepResponse response;
    expect(stub->BeginStep(&context, request, &response), grpc::NOT_FOUND, "other");
  }
  {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job("other");
    v1::JobDescription response;
    expect(stub->GetJob(&context, request, &response), grpc::NOT_FOUND, "other");
  }
  const auto admin = v1::Admin::NewStub(channel);
  {
    grpc::ClientContext context;
    v1::StepHistoryRequest request;
    request.set_job(job.name());
    request.set_limit(1001);
    v1::StepHistoryResponse response;
    expect(admin->StepHistory(&context, request, &response), grpc::INVALID_ARGUMENT, "limit");
  }
  {
    grpc::ClientContext context;
    v1::ListParametersRequest request;
    request.set_job(job.name());
    request.set_name_regex("(");
    v1::ListParametersResponse response;
    expect(admin->ListParameters(&context, request, &response), grpc::INVALID_ARGUMENT, "regex");
  }
  EXPECT_EQ(StateDigests(cluster, 2), before);
}

TEST(ServiceTest, MalformedChangesOfGroupsLeaveTheStateDigestAlone) {
  testing::InProcessCluster cluster(2);
  TrainRank(cluster, TinyJob(1), 0);
  WaitUntilApplied(cluster, TinyJob(1));
  const std::vector<uint64_t> before = StateDigests(cluster, 2);
  const auto admin = v1::Admin::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  const struct {
    const char* job;
    const char* group;
    const char* field;
    const char* value;
    uint64_t revision;
    grpc::StatusCode code;
    const char* says;
  } kRefused[] = {
      {"", "adamw", "lr", "0.5", 9, grpc::ABORTED, "expected_revision is 9, config_revision is 1"},
      {"elsewhere", "adamw", "lr", "0.5", 1, grpc::NOT_FOUND, "elsewhere"},
      {"tiny", "other", "lr", "0.5", 1, grpc::NOT_FOUND, "other"},
      {"tiny", "adamw", "lr", "-1", 1, grpc::INVALID_ARGUMENT, "lr is -1, must be 0"},
      {"tiny", "adamw", "lr", "fast", 1, grpc::INVALID_ARGUMENT, "lr is \"fast\""},
      {"tiny", "adamw", "rate", "1", 1, grpc::INVALID_ARGUMENT, "field \"rate\""},
      {"tiny", "adamw", "norm_group", "x", 1, grpc::INVALID_ARGUMENT, "norm_group"},
      {"tiny", "muon", "adamw.eps", "1", 1, grpc::INVALID_ARGUMENT, "adamw.eps"},
  };
  for (const auto& refused : kRefused) {
    grpc::ClientContext context;
    v1::SetGroupRequest request;
    request.set_job(refused.job);
    request.set_group(refused.group);
    request.add_settings()->set_field(refused.field);
    request.mutable_settings(0)->set_value(refused.value);
    request.set_expected_revision(refused.revision);
    v1::SetGroupResponse response;
    const grpc::Status status = admin->SetGroup(&context, request, &response);
    EXPECT_EQ(status.error_code(), refused.code) << refused.says;
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(refused.says));
  }
  EXPECT_EQ(StateDigests(cluster, 2), before);
}

// Follows a change of a group: the coordinator accepts it, the shards apply it, rates and history
// show it. A worker that starts again is not disturbed.
TEST(ServiceTest, AChangeOfAGroupIsInTheNextStep) {
  testing::InProcessCluster cluster(2);
  const v1::JobDefinition job = TinyJob(1);
  Client client = cluster.Connect();
  Result<Job> registered = client.Register(PublicJob(job));
  ASSERT_TRUE(registered.ok()) << registered.status().ToString();
  const auto admin = v1::Admin::NewStub(
      grpc::CreateChannel(cluster.coordinator_address(), grpc::InsecureChannelCredentials()));
  v1::SetGroupResponse changed;
  {
    grpc::ClientContext context;
    v1::SetGroupRequest request;
    request.set_group("adamw");
    request.add_settings()->set_field("lr");
    request.mutable_settings(0)->set_value("0.25");
    request.set_expected_revision(1);
    const grpc::Status status = admin->SetGroup(&context, request, &changed);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(changed.config_revision(), 2u);
  EXPECT_EQ(changed.group().lr(), 0.25);
  cluster.ReplaceCoordinator();
  // A new process with the definition it has always had.
  TrainRank(cluster, job, 0);
  grpc::ClientContext context;
  v1::StepHistoryResponse history;
  ASSERT_TRUE(admin->StepHistory(&context, v1::StepHistoryRequest(), &history).ok());
  ASSERT_EQ(history.records_size(), static_cast<int>(kSteps) + 2);
  EXPECT_EQ(history.records(0).plan().group_change().settings(0).value(), "0.25");
  EXPECT_EQ(history.records(2).plan().config_revision(), 2u);
  EXPECT_EQ(history.records(2).plan().step().rates(1).learning_rate(), 0.25);
}

}  // namespace
}  // namespace kaon
