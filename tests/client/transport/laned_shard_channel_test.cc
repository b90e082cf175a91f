#include "client/transport/laned_shard_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/transport/grpc_shard_channel.h"
#include "tests/conformance/shard_channel_conformance.h"

namespace kaon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Over one connection, which is as good for this, and with pushes and pulls of a few bytes divided.
INSTANTIATE_TEST_SUITE_P(Laned, ShardChannelConformance,
                         testing::Values([](const std::shared_ptr<grpc::Channel>& connection,
                                            const std::shared_ptr<CallTracker>& tracker,
                                            const std::shared_ptr<TransferCounters>&,
                                            kernels::FakeFabric&) {
                           return CreateLanedShardChannel(
                               {CreateGrpcShardChannel(connection, tracker),
                                CreateGrpcShardChannel(connection, tracker)},
                               /*least_lane_bytes=*/4);
                         }));

// A lane that the test ends the pulls of.
class FakeLane : public ShardChannel {
 public:
  class Pulling : public PullStream {
   public:
    void Cancel() override { cancelled = true; }
    bool cancelled = false;
  };

  std::shared_ptr<PushStream> Push(const v1::PushOpen&, std::shared_ptr<PushSource>) override {
    return nullptr;
  }
  std::shared_ptr<PullStream> Pull(PullOptions options) override {
    pulls.push_back(std::move(options));
    streams.push_back(std::make_shared<Pulling>());
    if (answer.has_value()) std::exchange(pulls.back().done, nullptr)(*answer);
    return streams.back();
  }
  std::vector<uint32_t> Ids(size_t pull = 0) const {
    const auto& ids = pulls.at(pull).request.parameter_ids();
    return {ids.begin(), ids.end()};
  }
  void End(const absl::Status& status) { std::exchange(pulls.at(0).done, nullptr)(status); }

  std::vector<PullOptions> pulls;
  std::vector<std::shared_ptr<Pulling>> streams;
  // Of every pull, before Pull returns.
  std::optional<absl::Status> answer;
};

class LanedShardChannelTest : public testing::Test {
 protected:
  // Pulls parameters 0, 1, ... of these sizes in bytes.
  std::shared_ptr<PullStream> Pull(const std::vector<uint64_t>& bytes) {
    PullOptions options;
    options.request.set_job("job");
    options.request.set_step(7);
    options.timeout = absl::Seconds(3);
    for (uint32_t id = 0; id < bytes.size(); ++id) {
      options.request.add_parameter_ids(id);
      options.targets.push_back({nullptr, bytes[id] / 4, DType::kFloat32});
    }
    options.on_bytes = [this](uint64_t count) { bytes_ += count; };
    options.done = [this](const absl::Status& status) { done_.push_back(status); };
    return channel_->Pull(std::move(options));
  }

  std::shared_ptr<FakeLane> first_ = std::make_shared<FakeLane>();
  std::shared_ptr<FakeLane> second_ = std::make_shared<FakeLane>();
  std::shared_ptr<ShardChannel> channel_ =
      CreateLanedShardChannel({first_, second_}, /*least_lane_bytes=*/100);
  std::vector<absl::Status> done_;
  uint64_t bytes_ = 0;
};

TEST_F(LanedShardChannelTest, DividesALongPullIntoEqualPartsInItsOrder) {
  Pull({40, 40, 80, 40, 40});
  EXPECT_THAT(first_->Ids(), ElementsAre(0, 2));
  EXPECT_THAT(second_->Ids(), ElementsAre(1, 3, 4));
  for (const FakeLane* lane : {first_.get(), second_.get()}) {
    EXPECT_EQ(lane->pulls[0].request.job(), "job");
    EXPECT_EQ(lane->pulls[0].request.step(), 7);
    EXPECT_EQ(lane->pulls[0].timeout, absl::Seconds(3));
    EXPECT_EQ(lane->pulls[0].targets.size(), lane->Ids().size());
    lane->pulls[0].on_bytes(8);
  }
  EXPECT_EQ(first_->pulls[0].targets[1].num_elements, 20u);
  EXPECT_EQ(bytes_, 16u);
}

TEST_F(LanedShardChannelTest, LeavesShortPullsAndSingleParametersToTheFirstLane) {
  Pull({40, 40, 80});
  Pull({4000});
  Pull({});
  EXPECT_THAT(first_->pulls, SizeIs(3));
  EXPECT_THAT(first_->Ids(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(second_->pulls, IsEmpty());
  first_->End(absl::OkStatus());
  EXPECT_THAT(done_, ElementsAre(absl::OkStatus()));
}

TEST_F(LanedShardChannelTest, IsDoneOnceAllPartsAre) {
  Pull({200, 200});
  second_->End(absl::OkStatus());
  EXPECT_THAT(done_, IsEmpty());
  first_->End(absl::OkStatus());
  EXPECT_THAT(done_, ElementsAre(absl::OkStatus()));
}

TEST_F(LanedShardChannelTest, TheFirstFailureCancelsTheOthersAndIsTold) {
  Pull({200, 200});
  second_->End(absl::DataLossError("checksum"));
  EXPECT_TRUE(first_->streams[0]->cancelled);
  // The caller gets the targets back only when no lane writes them any longer.
  EXPECT_THAT(done_, IsEmpty());
  first_->End(absl::CancelledError("cancelled"));
  EXPECT_THAT(done_, ElementsAre(absl::DataLossError("checksum")));
}

TEST_F(LanedShardChannelTest, APartThatBeginsAfterAnotherFailedIsCancelled) {
  first_->answer = absl::UnavailableError("refused");
  Pull({200, 200});
  EXPECT_TRUE(second_->streams[0]->cancelled);
  second_->End(absl::CancelledError("cancelled"));
  EXPECT_THAT(done_, ElementsAre(absl::UnavailableError("refused")));
}

TEST_F(LanedShardChannelTest, CancelsAllParts) {
  const std::shared_ptr<PullStream> pull = Pull({200, 200});
  first_->End(absl::OkStatus());
  pull->Cancel();
  EXPECT_FALSE(first_->streams[0]->cancelled);
  EXPECT_TRUE(second_->streams[0]->cancelled);
  second_->End(absl::CancelledError("cancelled"));
  EXPECT_THAT(done_, ElementsAre(absl::CancelledError("cancelled")));
}

}  // namespace
}  // namespace kaon::client
