// The test of StatusPage drives StatusFeed with shards that answer; here none does.
#include "server/coordinator/page/status_feed.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/steady_clock.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

// A shard that does not answer.
constexpr char kNobody[] = "127.0.0.1:1";

class StatusFeedTest : public testing::Test {
 protected:
  StatusFeedTest() : loop_([](SendToShard) {}) {
    StepMachineOptions options;
    options.address = "127.0.0.1:1";
    options.shard_addresses = {kNobody};
    loop_.Start(std::move(options));
    ShardLinkOptions link;
    link.channel = grpc::CreateChannel(kNobody, grpc::InsecureChannelCredentials());
    links_.push_back(std::make_unique<ShardLink>(std::move(link), ShardLinkEvents()));
  }
  ~StatusFeedTest() override {
    links_[0]->Shutdown();
    keeper_->Stop();
    loop_.Stop();
  }

  // Asks for new facts and waits for them; null if none come.
  std::shared_ptr<const PageFacts> Next() {
    feed_->Touch();
    feed_->Tick();
    return feed_->AwaitNext(&version_, SteadyNow() + absl::Minutes(1)) ? feed_->Get() : nullptr;
  }

  MachineLoop loop_;
  monitor::EventCounts counts_;
  monitor::ServiceHealth health_{"kaon.v1.Coordinator"};
  DecisionTimes times_;
  ClusterQueries::ShardLinks links_;
  std::unique_ptr<CheckpointKeeper> keeper_ = CheckpointKeeper::Create(testing::TempDir()).value();
  ClusterQueries queries_{loop_,   links_, std::vector<std::string>{kNobody}, *keeper_, health_,
                          counts_, times_};
  std::shared_ptr<StatusFeed> feed_ = StatusFeed::Make(queries_);
  uint64_t version_ = 0;
};

TEST_F(StatusFeedTest, GoesOnWhileACheckpointIsRead) {
  std::promise<void> release;
  keeper_->Run([&release](const absl::StatusOr<checkpoint::CheckpointDirectory*>&) {
    release.get_future().wait();
  });
  for (int i = 0; i < 3; ++i) {
    const std::shared_ptr<const PageFacts> facts = Next();
    if (facts == nullptr) release.set_value();
    ASSERT_NE(facts, nullptr) << "after " << i;
    EXPECT_TRUE(facts->problem.ok()) << facts->problem;
    EXPECT_THAT(std::string(facts->checkpoints_problem.message()), HasSubstr("is being read"));
  }
  release.set_value();
  std::shared_ptr<const PageFacts> facts = Next();
  while (facts != nullptr && facts->checkpoints_unix_millis == 0) facts = Next();
  ASSERT_NE(facts, nullptr);
  EXPECT_TRUE(facts->checkpoints_problem.ok()) << facts->checkpoints_problem;
}

TEST_F(StatusFeedTest, IsAskedAgainAsSoonAsValuesAreSeen) {
  for (int i = 0; i < 2000; ++i) ASSERT_NE(Next(), nullptr) << "after " << i;
}

TEST_F(StatusFeedTest, KeepsTheFactsOfAMachineThatNoLongerAnswers) {
  ASSERT_NE(Next(), nullptr);
  loop_.Stop();
  const std::shared_ptr<const PageFacts> facts = Next();
  ASSERT_NE(facts, nullptr);
  EXPECT_FALSE(facts->problem.ok());
  EXPECT_GT(facts->status.started_unix_millis(), 0);
}

}  // namespace
}  // namespace kaon::coordinator
