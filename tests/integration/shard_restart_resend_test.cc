// A worker resends only the data that a shard has lost when the shard restarts in the middle of a
// step (protocol.md 2.2). Real servers in this process.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kaon/v1/admin.grpc.pb.h"
#include "kaon/v1/shard_control.grpc.pb.h"
#include "tests/integration/tiny_training.h"
#include "tests/testing/in_process_cluster.h"

namespace kaon::testing {
namespace {

constexpr std::chrono::seconds kPatience(60);

class ShardRestartResendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Job> registered = client_.Register(PublicJob(definition_));
    ASSERT_TRUE(registered.ok()) << registered.status().ToString();
    job_.emplace(std::move(registered).value());
    Result<Worker> joined = job_->Join(0);
    ASSERT_TRUE(joined.ok()) << joined.status().ToString();
    worker_.emplace(std::move(joined).value());
    LoadWeights(definition_, *worker_);
    PullAll(definition_, *job_, 0);
    step_.emplace(BeginStep(definition_, *worker_, 1));
  }

  // Returns the parameters of a shard that take part in steps.
  std::vector<uint32_t> ParametersOf(uint32_t shard) const {
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < step_->gradients.size(); ++id) {
      if (step_->gradients[id].empty()) continue;
      if (job_->description().routes[id].shard == shard) ids.push_back(id);
    }
    return ids;
  }

  uint64_t BytesOf(const std::vector<uint32_t>& ids) const {
    uint64_t bytes = 0;
    for (uint32_t id : ids) bytes += 4 * step_->micro_batches * step_->gradients[id].size();
    return bytes;
  }

  void Push(const std::vector<uint32_t>& ids) {
    for (uint32_t id : ids) {
      for (Future<Done>& accepted : step_->Push(id)) EXPECT_TRUE(accepted.Get().ok()) << id;
    }
  }

  bool HasVoted(int shard) const {
    const auto stub = v1::ShardControl::NewStub(
        grpc::CreateChannel(cluster_.shard_address(shard), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::DescribeShardResponse response;
    EXPECT_TRUE(stub->DescribeShard(&context, {}, &response).ok());
    return response.state().has_prepared();
  }

  std::string Phase() const {
    const auto stub = v1::Admin::NewStub(grpc::CreateChannel(cluster_.coordinator_address(),
                                                             grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(stub->GetStatus(&context, {}, &response).ok());
    return response.phase();
  }

  static void WaitFor(const std::function<bool()>& done) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      std::this_thread::yield();
      ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    }
  }

  uint64_t push_bytes() const { return client_.transfer_totals().push_bytes; }

  void ExpectTheSerialResult(const StepRecord& record) {
    simulation::SerialReplay replay = LoadedReplay(definition_);
    replay.Apply(RecordOf(definition_, record));
    EXPECT_EQ(PullAll(definition_, *job_, 1), replay.weights());
  }

  const v1::JobDefinition definition_ = simulation::TinyJob(1);
  InProcessCluster cluster_{2};
  Client client_ = cluster_.Connect();
  std::optional<Job> job_;
  std::optional<Worker> worker_;
  std::optional<OpenStep> step_;
};

TEST_F(ShardRestartResendTest, NothingOfAStepThatItHasVotedFor) {
  const std::vector<uint32_t> of_voter = ParametersOf(0);
  const std::vector<uint32_t> of_other = ParametersOf(1);
  ASSERT_FALSE(of_voter.empty() || of_other.empty());
  Push(of_voter);
  // The other one is away, so that nothing is decided.
  Push({of_other[0]});
  const uint64_t retries = client_.transfer_totals().retries;
  cluster_.StopShard(1);
  WaitFor([&] { return client_.transfer_totals().retries > retries; });
  for (size_t i = 1; i < of_other.size(); ++i) step_->Push(of_other[i]);
  Future<StepRecord> decided = step_->Finish();
  WaitFor([&] { return HasVoted(0); });
  const uint64_t before = push_bytes();
  cluster_.StopShard(0);
  cluster_.StartShard(0);
  WaitFor([&] { return Phase().starts_with("reading the shards: waiting for shard 1"); });
  cluster_.StartShard(1);
  Result<StepRecord> record = decided.Get();
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(push_bytes() - before, BytesOf(of_other));
  ExpectTheSerialResult(*record);
}

TEST_F(ShardRestartResendTest, WhatItHadWithoutAVoteAndNothingToTheOthers) {
  const std::vector<uint32_t> of_restarted = ParametersOf(0);
  std::vector<uint32_t> of_other = ParametersOf(1);
  ASSERT_FALSE(of_restarted.empty() || of_other.empty());
  // Without it the step is not finished.
  const uint32_t last = of_other.back();
  of_other.pop_back();
  Push(of_restarted);
  Push(of_other);
  const uint64_t before = push_bytes();
  cluster_.StopShard(0);
  cluster_.StartShard(0);
  WaitFor([&] { return push_bytes() >= before + BytesOf(of_restarted); });
  Push({last});
  Result<StepRecord> record = step_->Finish().Get();
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(push_bytes() - before, BytesOf(of_restarted) + BytesOf({last}));
  ExpectTheSerialResult(*record);
}

}  // namespace
}  // namespace kaon::testing
