#include "server/shard/parameters/parameter_publisher.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/tier/memory_home.h"
#include "server/tier/tiered_store.h"
#include "tests/server/shard/device/shard_memory.h"

namespace kaon::shard {
namespace {

class ParameterPublisherTest : public testing::Test {
 protected:
  ParameterPublisherTest() {
    const tier::UnitId w = *home_.Add({"w", 12, {}, false});
    const tier::UnitId f = *home_.Add({"f", 8, {}, true});
    publisher_.Serve("gpt2", 1, {{7, "w", 3, &home_, w}, {8, "f", 2, &home_, f}});
  }
  void Write(uint64_t step, float value) {
    tier::UnitUpdatePin pinned = *publisher_.BeginWrite(7);
    memory_.Write(pinned.next_weights(), std::vector<float>(3, value));
    publisher_.Publish(7, step, std::move(pinned));
  }
  absl::StatusOr<float> Read(uint64_t step) {
    float value = 0;
    const absl::Status status =
        publisher_.Read(7, step, 1, kernels::DType::kFloat32, absl::MakeSpan(&value, 1));
    if (!status.ok()) return status;
    return value;
  }
  v1::PullRequest Request(uint64_t step = 0) {
    v1::PullRequest request;
    request.set_job("gpt2");
    request.set_timeline(1);
    request.set_step(step);
    request.set_dtype(v1::DTYPE_FLOAT32);
    request.add_parameter_ids(7);
    return request;
  }

  // Room for two copies.
  ShardMemory memory_{ShardMemory::least_extent() * 2};
  tier::TieredStore& store_ = memory_.store();
  const std::unique_ptr<tier::StateTier> tier_ = memory_.NewTier(1 << 16);
  tier::TieredStore weights_{*tier_};
  tier::MemoryHome home_{weights_, "test"};
  ParameterPublisher publisher_{memory_.backend(), nullptr, &store_};
};

// P5: a reader keeps its version, however many steps the job takes meanwhile.
TEST_F(ParameterPublisherTest, AVersionThatIsReadOutlivesItsBuffer) {
  Write(0, 10);
  const ReaderId reader = publisher_.Pin(Request(0));
  const ReaderId other = publisher_.Pin(Request(0));
  for (uint64_t step = 1; step <= 4; ++step) Write(step, 10.0f + static_cast<float>(step));
  EXPECT_EQ(*Read(0), 10);
  EXPECT_TRUE(publisher_.IsReadable(7, 0));
  EXPECT_EQ(store_.used_bytes(), ShardMemory::least_extent());
  publisher_.Unpin(reader, 7);
  publisher_.Unpin(reader, 7);
  EXPECT_EQ(*Read(0), 10);
  publisher_.Unpin(other, 7);
  EXPECT_EQ(Read(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterPublisherTest, WhatNobodyReadsIsNotCopied) {
  Write(0, 10);
  const ReaderId reader = publisher_.Pin(Request(0));
  publisher_.Unpin(reader, 7);
  publisher_.Pin(Request(9));
  for (uint64_t step = 1; step <= 4; ++step) Write(step, 10);
  EXPECT_EQ(store_.used_bytes(), 0u);
}

// A version that is on its way can be held on to as well.
TEST_F(ParameterPublisherTest, AVersionThatIsToComeOutlivesItsBuffer) {
  Write(0, 10);
  publisher_.ExpectStep(1);
  publisher_.Pin(Request(1));
  for (uint64_t step = 1; step <= 4; ++step) Write(step, 10.0f + static_cast<float>(step));
  EXPECT_EQ(*Read(1), 11);
}

TEST_F(ParameterPublisherTest, WithoutRoomForACopyAVersionIsGone) {
  for (uint64_t step = 0; step <= 5; ++step) {
    publisher_.Pin(Request(step));
    Write(step, static_cast<float>(step));
  }
  EXPECT_EQ(*Read(0), 0);
  EXPECT_EQ(*Read(1), 1);
  EXPECT_EQ(Read(2).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*Read(4), 4);
  EXPECT_EQ(*Read(5), 5);
  publisher_.DropCopies();
  EXPECT_EQ(Read(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterPublisherTest, ANewTimelineEndsCopies) {
  publisher_.Pin(Request(0));
  for (uint64_t step = 0; step <= 3; ++step) Write(step, 1);
  EXPECT_TRUE(Read(0).ok());
  publisher_.Rewind(2);
  EXPECT_FALSE(Read(0).ok());
  EXPECT_EQ(store_.used_bytes(), 0u);
}

TEST_F(ParameterPublisherTest, ServesTheNewestVersionAndTheOneBefore) {
  Write(0, 10);
  Write(1, 11);
  EXPECT_EQ(*Read(0), 10);
  EXPECT_EQ(*Read(1), 11);
  Write(2, 12);
  EXPECT_EQ(*Read(1), 11);
  EXPECT_EQ(Read(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(publisher_.CheckPull(Request(0)).message(),
            "parameter w: version 0 pulled, it is gone, the newest is 2");
}

TEST_F(ParameterPublisherTest, AVersionIsGoneBeforeItsMemoryIsWritten) {
  Write(0, 10);
  Write(1, 11);
  ASSERT_TRUE(publisher_.BeginWrite(7).ok());
  EXPECT_EQ(Read(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*Read(1), 11);
}

TEST_F(ParameterPublisherTest, ACarriedVersionIsTheSameMemory) {
  Write(0, 10);
  publisher_.PublishUnchanged(7, 1);
  EXPECT_EQ(*Read(0), 10);
  EXPECT_EQ(*Read(1), 10);
  EXPECT_EQ(memory_.Floats(publisher_.PinNewest(7)->tensor(0))[0], 10);
}

TEST_F(ParameterPublisherTest, WritesAFrozenParameterOnce) {
  tier::UnitUpdatePin pinned = *publisher_.BeginWrite(8);
  ASSERT_EQ(pinned.next_weights().num_floats(), 2u);
  publisher_.Publish(8, 0, std::move(pinned));
  publisher_.PublishUnchanged(8, 1);
  EXPECT_TRUE(publisher_.Await(8, 1, [] {}).ok());
}

TEST_F(ParameterPublisherTest, WakesAReaderWhenItsVersionIsPublished) {
  Write(0, 10);
  publisher_.ExpectStep(1);
  int woken = 0;
  const absl::StatusOr<WaiterId> waiter = publisher_.Await(7, 1, [&] { ++woken; });
  ASSERT_TRUE(waiter.ok()) << waiter.status();
  EXPECT_NE(*waiter, 0u);
  EXPECT_EQ(woken, 0);
  Write(1, 11);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(*publisher_.Await(7, 1, [] {}), 0u);
  publisher_.CloseAll(absl::UnavailableError("over"));
  EXPECT_EQ(woken, 1);
}

TEST_F(ParameterPublisherTest, WakesNobodyWhoWasForgotten) {
  publisher_.ExpectStep(0);
  int woken = 0;
  const absl::StatusOr<WaiterId> waiter = publisher_.Await(7, 0, [&] { ++woken; });
  ASSERT_TRUE(waiter.ok());
  publisher_.Forget(*waiter);
  Write(0, 10);
  EXPECT_EQ(woken, 0);
}

TEST_F(ParameterPublisherTest, RefusesAVersionThatIsNotPlanned) {
  EXPECT_EQ(publisher_.CheckPull(Request(0)).code(), absl::StatusCode::kUnavailable);
  publisher_.ExpectStep(0);
  EXPECT_TRUE(publisher_.CheckPull(Request(0)).ok());
  Write(0, 10);
  EXPECT_EQ(publisher_.Await(7, 1, [] {}).status().message(),
            "parameter w: version 1 pulled, the newest is 0");
}

TEST_F(ParameterPublisherTest, WakesReadersOfAStepThatIsNoLongerPlanned) {
  publisher_.ExpectStep(0);
  int woken = 0;
  ASSERT_TRUE(publisher_.Await(7, 0, [&] { ++woken; }).ok());
  publisher_.ExpectStep(std::nullopt);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(publisher_.Await(7, 0, [] {}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ParameterPublisherTest, RefusesAPullThatDoesNotFit) {
  Write(0, 10);
  const auto code = [&](auto&& spoil) {
    v1::PullRequest request = Request();
    spoil(&request);
    return publisher_.CheckPull(request).code();
  };
  EXPECT_EQ(code([](v1::PullRequest*) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](v1::PullRequest* r) { r->set_job("bert"); }), absl::StatusCode::kNotFound);
  EXPECT_EQ(code([](v1::PullRequest* r) { r->set_timeline(0); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](v1::PullRequest* r) { r->set_timeline(2); }), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](v1::PullRequest* r) { r->clear_dtype(); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::PullRequest* r) { r->add_parameter_ids(9); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](v1::PullRequest* r) {
              for (int i = 0; i < kMaxPulledParameters; ++i) r->add_parameter_ids(7);
            }),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ParameterPublisherTest, RoundsToTheTypeAskedFor) {
  Write(0, 1.00390625f);  // Halfway between two bfloat16 values: ties to even.
  uint16_t value = 0;
  ASSERT_TRUE(publisher_
                  .Read(7, 0, 0, kernels::DType::kBFloat16,
                        absl::MakeSpan(reinterpret_cast<std::byte*>(&value), sizeof(value)))
                  .ok());
  EXPECT_EQ(value, 0x3f80);
}

TEST_F(ParameterPublisherTest, RefusesEverythingOnceClosed) {
  Write(0, 10);
  publisher_.ExpectStep(1);
  int woken = 0;
  ASSERT_TRUE(publisher_.Await(7, 1, [&] { ++woken; }).ok());
  publisher_.CloseAll(absl::DataLossError("lost"));
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(publisher_.CheckPull(Request()).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(publisher_.Await(7, 0, [] {}).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kaon::shard
