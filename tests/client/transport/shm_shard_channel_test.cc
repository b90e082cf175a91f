#include "client/transport/shm_shard_channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "client/transport/event_loop.h"
#include "client/transport/grpc_shard_channel.h"
#include "tests/conformance/shard_channel_conformance.h"

namespace kaon::client {
namespace {

ShmShardChannelOptions OptionsOf(const std::shared_ptr<grpc::Channel>& connection,
                                 const std::shared_ptr<CallTracker>& tracker,
                                 const std::shared_ptr<TransferCounters>& counters) {
  ShmShardChannelOptions options;
  options.name = "test";
  options.open = [connection] { return OpenShmSession(connection); };
  options.network = CreateGrpcShardChannel(connection, tracker);
  options.tracker = tracker;
  options.counters = counters;
  return options;
}

// A call without a session fails, so only shared memory can pass the suite.
std::shared_ptr<ShardChannel> MakeRequired(std::shared_ptr<grpc::Channel> connection,
                                           std::shared_ptr<CallTracker> tracker,
                                           std::shared_ptr<TransferCounters> counters,
                                           kernels::FakeFabric&) {
  ShmShardChannelOptions options = OptionsOf(connection, tracker, counters);
  options.required = true;
  return CreateShmShardChannel(std::move(options));
}

// Behaves as on a machine without shared-memory sessions.
std::shared_ptr<ShardChannel> MakeRefused(std::shared_ptr<grpc::Channel> connection,
                                          std::shared_ptr<CallTracker> tracker,
                                          std::shared_ptr<TransferCounters> counters,
                                          kernels::FakeFabric&) {
  ShmShardChannelOptions options = OptionsOf(connection, tracker, counters);
  options.open = [] { return absl::FailedPreconditionError("boot_id"); };
  options.retry_after = absl::ZeroDuration();
  return CreateShmShardChannel(std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Shm, ShardChannelConformance, testing::Values(MakeRequired));
INSTANTIATE_TEST_SUITE_P(RefusedShm, ShardChannelConformance, testing::Values(MakeRefused));

class ShmShardChannelTest : public ShardChannelConformance {};

TEST_P(ShmShardChannelTest, CountsWhatPassesThroughSharedMemory) {
  const auto source = WholeStep();
  const auto stream = shard_->Push(Open(0), source);
  ASSERT_TRUE(source->AwaitDone().ok());
  EXPECT_EQ(counters_->shm_bytes, 40u);
  ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  EXPECT_EQ(counters_->shm_bytes, 60u);
  EXPECT_EQ(counters_->shm_refusals, 0u);
}

TEST_P(ShmShardChannelTest, UsesItsSessionsAgain) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  }
  EXPECT_EQ(counters_->shm_bytes, 200u);
}

INSTANTIATE_TEST_SUITE_P(Shm, ShmShardChannelTest, testing::Values(MakeRequired));

class RefusedShmTest : public ShardChannelConformance {
 protected:
  // A channel whose attempts to open a session are counted and fail.
  void Refuse(const absl::Status& status, bool required, absl::Duration retry_after) {
    ShmShardChannelOptions options = OptionsOf(channel_, tracker_, counters_);
    options.open = [this, status] {
      ++attempts_;
      return status;
    };
    options.required = required;
    options.retry_after = retry_after;
    shard_ = CreateShmShardChannel(std::move(options));
  }

  std::atomic<int> attempts_{0};
};

TEST_P(RefusedShmTest, UsesTheNetworkAndAsksAgainLater) {
  Refuse(absl::ResourceExhaustedError("taken"), false, absl::InfiniteDuration());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  EXPECT_EQ(attempts_, 1);
  EXPECT_EQ(counters_->shm_refusals, 1u);
  EXPECT_EQ(counters_->shm_bytes, 0u);
  Refuse(absl::ResourceExhaustedError("taken"), false, absl::ZeroDuration());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  EXPECT_EQ(attempts_, 4);
}

TEST_P(RefusedShmTest, AsksLessAndLessOften) {
  Refuse(absl::FailedPreconditionError("boot_id"), false, absl::Milliseconds(50));
  const absl::Time end = EventLoop::Now() + absl::Seconds(1);
  while (EventLoop::Now() < end) ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  // The channel asks after 0, 50, 150, 350 and 750 ms, or later.
  EXPECT_GE(attempts_, 2);
  EXPECT_LE(attempts_, 5);
}

TEST_P(RefusedShmTest, KeepsTheSessionItHasWhenItGetsNoSecondOne) {
  ShmShardChannelOptions options = OptionsOf(channel_, tracker_, counters_);
  options.open = [this]() -> absl::StatusOr<std::unique_ptr<proto::ShmLink>> {
    if (++attempts_ > 1) return absl::ResourceExhaustedError("taken");
    return OpenShmSession(channel_);
  };
  shard_ = CreateShmShardChannel(std::move(options));
  ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  // Waits for the other contribution, on the one session there is.
  const auto waiting = StartPull(1, {{2, 5}});
  ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  EXPECT_EQ(attempts_, 2);
  EXPECT_EQ(counters_->shm_refusals, 1u);
  EXPECT_EQ(counters_->shm_bytes, 20u);
  waiting->stream->Cancel();
  waiting->Await();
  // The channel uses the session again once it is free.
  const absl::Time end = EventLoop::Now() + absl::Seconds(60);
  while (counters_->shm_bytes == 20u && EventLoop::Now() < end) {
    ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  }
  EXPECT_EQ(counters_->shm_bytes, 40u);
  EXPECT_EQ(attempts_, 2);
}

TEST_P(RefusedShmTest, AsksAShardThatWasNotThereAtOnce) {
  Refuse(absl::UnavailableError("gone"), false, absl::InfiniteDuration());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StartPull(0, {{2, 5}})->Await().status.ok());
  EXPECT_EQ(attempts_, 3);
}

TEST_P(RefusedShmTest, FailsWhereSharedMemoryIsRequired) {
  Refuse(absl::FailedPreconditionError("boot_id"), true, absl::ZeroDuration());
  EXPECT_EQ(StartPull(0, {{2, 5}})->Await().status, absl::FailedPreconditionError("boot_id"));
  const auto source = WholeStep();
  const auto stream = shard_->Push(Open(0), source);
  EXPECT_EQ(source->AwaitDone(), absl::FailedPreconditionError("boot_id"));
}

INSTANTIATE_TEST_SUITE_P(Refused, RefusedShmTest, testing::Values(MakeRefused));

}  // namespace
}  // namespace kaon::client
