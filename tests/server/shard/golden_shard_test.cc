// T20: a shard starts from a data_dir that version 1 wrote, with its snapshot and the journal
// behind it, and goes on. The files in golden_shard/ are those of ServedShardTest::PlanStepOne, one
// applied step, an orderly end, which takes a snapshot, and one more step after the next start;
// they are never written again.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/shard/served_shard.h"

namespace kaon::shard {
namespace {

constexpr char kGolden[] = "tests/server/shard/golden_shard";

class GoldenShardTest : public ServedShardTest {
 protected:
  // In place of the server that the fixture has started.
  void StartOn(const std::string& data_dir) {
    coordinator_.reset();
    server_->Shutdown();
    server_.reset();
    v1::ShardConfig config;
    config.set_data_dir(data_dir);
    config.set_host_memory_bytes(64 << 20);
    config.set_gemm("reference");
    // Of another machine.
    config.set_allow_other_build(true);
    absl::StatusOr<std::unique_ptr<ShardServer>> server = ShardServer::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                   grpc::InsecureChannelCredentials());
    data_ = v1::ShardData::NewStub(channel_);
    control_ = v1::ShardControl::NewStub(channel_);
  }

  // Both ranks push, and the vote is decided.
  void TrainStep(uint64_t step, uint64_t counter) {
    for (uint32_t rank : {0, 1}) {
      ASSERT_TRUE(Push({OpenRequest(rank, step), ChunkRequest(0, {1, -2, 3, -4, 5, -6}),
                        ChunkRequest(1, {1, 2, 3, 4}), FinishRequest()})
                      .ok());
    }
    ASSERT_TRUE(coordinator_->Receive().has_prepared());
    ASSERT_TRUE(coordinator_->Ask(DecisionOf(Applying(TrainPlan(step, counter, 1)))).has_applied());
  }
};

TEST_F(GoldenShardTest, AShardStartsFromItAndGoesOn) {
  const std::filesystem::path data_dir = testing::TempDir() + "/golden";
  std::filesystem::create_directory(data_dir);
  for (const auto& file : std::filesystem::directory_iterator(kGolden)) {
    std::filesystem::copy(std::filesystem::canonical(file), data_dir / file.path().filename());
  }
  ASSERT_EQ(chmod(data_dir.c_str(), 0700), 0);
  StartOn(data_dir.string());
  const v1::DescribeShardResponse described = Describe();
  EXPECT_EQ(described.state().applied_step(), 2u);
  EXPECT_EQ(described.snapshot().step(), 1u);
  EXPECT_EQ(described.weights_digest(), 5581309208021790676u);
  EXPECT_EQ(described.state_digest(), 18180834761555973908u);
  EXPECT_TRUE(Pull(PullOf(2, {0, 1, 2})).ok());
  coordinator_ = std::make_unique<ControlCall>(*control_);
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(3)).has_state());
  coordinator_->Send(PlanOf(TrainPlan(3, 3, 1)));
  // Answered after the plan, which has no answer yet.
  ASSERT_TRUE(coordinator_->Ask(PromiseOf(3)).has_state());
  TrainStep(3, 3);
  EXPECT_EQ(Describe().state().applied_step(), 3u);
}

}  // namespace
}  // namespace kaon::shard
