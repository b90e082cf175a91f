// Part of the suite of ShardChannel: pulls, and concurrent calls. The tests of each channel
// instantiate it; one thread.
#ifndef KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PULL_H_
#define KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PULL_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/conformance/shard_channel_conformance_fixture.h"

namespace kaon::client {

TEST_P(ShardChannelConformance, PullsIntoTheTargets) {
  const Pulled pulled = StartPull(0, {{2, 5}, {0, 6}, {1, 4}})->Await();
  ASSERT_TRUE(pulled.status.ok()) << pulled.status;
  EXPECT_EQ(pulled.values[0], std::vector<float>(5, 9));
  EXPECT_EQ(pulled.values[1], std::vector<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(pulled.values[2], std::vector<float>(4, 1));
  EXPECT_EQ(pulled.bytes, 15 * sizeof(float));
  EXPECT_TRUE(StartPull(0, {})->Await().status.ok());
}

TEST_P(ShardChannelConformance, ReportsPullsThatTheShardRefuses) {
  EXPECT_TRUE(absl::IsInvalidArgument(StartPull(0, {{7, 1}})->Await().status));
  EXPECT_TRUE(absl::IsUnavailable(StartPull(2, {{0, 6}})->Await().status));
}

TEST_P(ShardChannelConformance, PullsWhileItPushesAndWaitsForThePlannedStep) {
  const auto pull = StartPull(1, {{0, 6}, {2, 5}});
  for (uint32_t rank : {0, 1}) {
    const auto source = WholeStep();
    const auto stream = shard_->Push(Open(rank), source);
    ASSERT_TRUE(source->AwaitDone().ok());
  }
  EXPECT_TRUE(coordinator_->Receive().has_prepared());
  EXPECT_TRUE(
      coordinator_->Ask(DecisionOf(shard::Applying(shard::TrainPlan(1, 1, 1)))).has_applied());
  const Pulled pulled = pull->Await();
  EXPECT_TRUE(pulled.status.ok()) << pulled.status;
  EXPECT_EQ(pulled.values[1], std::vector<float>(5, 9));
}

TEST_P(ShardChannelConformance, AWaitingPullEndsInTimeOrWhenItIsCancelled) {
  EXPECT_EQ(StartPull(1, {{0, 6}}, absl::Milliseconds(50))->Await().status.code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto pull = StartPull(1, {{0, 6}});
  pull->stream->Cancel();
  EXPECT_TRUE(absl::IsCancelled(pull->Await().status));
  EXPECT_TRUE(StartPull(0, {{0, 6}})->Await().status.ok());
}

TEST_P(ShardChannelConformance, CarriesMoreCallsAtOnceThanItHasWaysFor) {
  std::vector<std::shared_ptr<PullUnderWay>> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(StartPull(1, {{0, 6}}));
  const auto source = WholeStep();
  const auto stream = shard_->Push(Open(0), source);
  EXPECT_TRUE(source->AwaitDone().ok());
  EXPECT_TRUE(StartPull(0, {{0, 6}})->Await().status.ok());
  for (const auto& pull : waiting) {
    pull->stream->Cancel();
    EXPECT_TRUE(absl::IsCancelled(pull->Await().status));
  }
}

}  // namespace kaon::client

#endif  // KAON_TESTS_CONFORMANCE_SHARD_CHANNEL_CONFORMANCE_PULL_H_
