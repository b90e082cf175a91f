// The same step over gRPC and over NCCL, at two shards: both end in the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "client/transport/grpc_shard_channel.h"
#include "client/transport/nccl_shard_channel.h"
#include "client/transport/push_queue.h"
#include "kernels/nccl/abort_queue.h"
#include "tests/conformance/queued_source.h"
#include "tests/server/shard/transport/served_shard.h"
#include "tests/testing/fake_link.h"

namespace kaon::client {
namespace {

using kernels::FakeFabric;

// A message of weights has room for these, and one of gradients for a quarter.
constexpr uint64_t kElements = 250'000;
constexpr size_t kChunkBytes = 256 << 10;
constexpr uint32_t kMicroBatches = 2;

struct Fabric {
  const std::shared_ptr<FakeFabric> fabric = std::make_shared<FakeFabric>();
};

// A shard that waits for step 1 of two ranks, of which rank 0 has two micro-batches.
class Shard : private Fabric, public shard::ServedShardTest {
 public:
  Shard() : ServedShardTest(/*shm_sessions=*/0, fabric->NewLink()) {
    PlanStepOne(kElements, kMicroBatches);
  }
  ~Shard() override {
    server_.reset();
    std::filesystem::remove_all(data_dir_);
  }
  void TestBody() override {}

  std::shared_ptr<ShardChannel> OverGrpc() { return CreateGrpcShardChannel(channel_, tracker_); }
  std::shared_ptr<ShardChannel> OverNccl(const FakeFabric::Faults& faults) {
    fabric->SetFaults(faults);
    NcclShardChannelOptions options;
    options.name = "test";
    options.open = [this](const v1::OpenNcclSessionRequest& request) {
      return OpenNcclSession(channel_, request);
    };
    options.connection = channel_;
    options.link = fabric->NewLink();
    options.aborts = std::make_shared<kernels::AbortQueue>(options.link);
    options.pushes = OverGrpc();
    options.pulls = options.pushes;
    options.required = true;
    options.tracker = tracker_;
    options.counters = counters_;
    return CreateNcclShardChannel(std::move(options));
  }

  // Pushes the gradients of a rank, each of its micro-batches, cut as PushQueue cuts them.
  void Push(ShardChannel& channel, uint32_t rank, int device) {
    std::vector<std::vector<float>> gradients;
    PushQueue queue(kChunkBytes);
    const uint32_t micro_batches = rank == 0 ? kMicroBatches : 1;
    std::mt19937 random(rank);
    std::normal_distribution<float> normal;
    gradients.reserve(size_t{2} * micro_batches);
    for (uint32_t parameter : {0, 1}) {
      for (uint32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        gradients.emplace_back(parameter == 0 ? 6 : kElements);
        for (float& value : gradients.back()) value = normal(random);
        TensorView tensor = {gradients.back().data(), gradients.back().size(), DType::kFloat32,
                             device, nullptr};
        queue.Add({parameter, micro_batch}, tensor);
      }
    }
    ASSERT_TRUE(queue.Open(uint64_t{1} << 30, {}).ok());
    const auto source = std::make_shared<QueuedSource>();
    while (!queue.all_sent()) {
      LeasedChunks message;
      message.chunks = queue.Next(uint64_t{1} << 30);
      source->Queue(message);
    }
    source->Queue(v1::PushFinish());
    const auto stream = channel.Push(OpenRequest(rank, 1).open(), source);
    const absl::Status status = source->AwaitDone();
    ASSERT_TRUE(status.ok()) << status;
  }
  // Returns what the shard voted, and its weights after it has applied the step.
  std::string Apply(std::vector<float>* weights) {
    const v1::Prepared prepared = coordinator_->Receive().prepared();
    EXPECT_EQ(prepared.sums_size(), 2);
    v1::StepPlan plan = shard::TrainPlan(1, 1, 1);
    plan.mutable_step()->mutable_members(0)->set_micro_batches(kMicroBatches);
    EXPECT_TRUE(coordinator_->Ask(DecisionOf(shard::Applying(plan))).has_applied());
    std::vector<v1::PullResponse> responses;
    EXPECT_TRUE(Pull(PullOf(1, {0, 1}), &responses).ok());
    for (const v1::PullResponse& response : responses) {
      const size_t before = weights->size();
      weights->resize(before + response.payload().size() / sizeof(float));
      std::memcpy(weights->data() + before, response.payload().data(), response.payload().size());
    }
    std::string sums;
    for (const v1::ParameterSums& sum : prepared.sums()) sums += sum.ShortDebugString() + "\n";
    return sums;
  }
  void TearDown() override { tracker_->AwaitNone(); }
  uint64_t nccl_bytes() const { return counters_->nccl_bytes; }

 private:
  const std::shared_ptr<CallTracker> tracker_ = std::make_shared<CallTracker>();
  const std::shared_ptr<TransferCounters> counters_ = std::make_shared<TransferCounters>();
};

TEST(NcclEqualityTest, AStepOverNcclEndsInTheBitsOfGrpc) {
  std::vector<float> expected;
  std::string sums;
  {
    // One shard at a time: all use the same directory.
    Shard over_grpc;
    for (uint32_t rank : {0, 1}) over_grpc.Push(*over_grpc.OverGrpc(), rank, /*device=*/-1);
    sums = over_grpc.Apply(&expected);
    over_grpc.TearDown();
  }
  ASSERT_EQ(expected.size(), 6 + kElements);

  FakeFabric::Faults slow;
  slow.polls = 2;
  slow.delay = 3;
  slow.reorder = true;
  for (const FakeFabric::Faults& faults : {FakeFabric::Faults(), slow}) {
    Shard over_nccl;
    {
      const std::shared_ptr<ShardChannel> channel = over_nccl.OverNccl(faults);
      // The later rank first: its chunks wait in staging.
      for (uint32_t rank : {1, 0}) over_nccl.Push(*channel, rank, /*device=*/0);
      over_nccl.TearDown();
    }
    std::vector<float> weights;
    EXPECT_EQ(over_nccl.Apply(&weights), sums);
    EXPECT_TRUE(weights == expected);
    EXPECT_EQ(over_nccl.nccl_bytes(), 3 * (6 + kElements) * sizeof(float));
  }
}

}  // namespace
}  // namespace kaon::client
