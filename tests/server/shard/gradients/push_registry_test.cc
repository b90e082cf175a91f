#include "server/shard/gradients/push_registry.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/server/shard/gradients/accumulator_fixture.h"

namespace kaon::shard {
namespace {

// Tests the streams through the accumulator that owns them.
class PushRegistryTest : public AccumulatorFixture {
 protected:
  absl::StatusOr<PushingWorker> TryJoin(const PushingWorker& push, uint32_t rank) {
    v1::PushOpen request = OpenRequest(rank);
    request.set_lane_of(push.stream);
    return TryOpen(request);
  }
  PushingWorker Join(const PushingWorker& push, uint32_t rank = 0) {
    const absl::StatusOr<PushingWorker> lane = TryJoin(push, rank);
    EXPECT_TRUE(lane.ok()) << lane.status();
    return lane.ok() ? *lane : PushingWorker();
  }
  static void ExpectEnded(const PushingWorker& worker, absl::StatusCode code) {
    ASSERT_EQ(worker.ended->size(), 1u);
    EXPECT_EQ(worker.ended->front().code(), code) << worker.ended->front();
  }
};

TEST_F(PushRegistryTest, LanesBringChunksWhoseCreditGoesToTheirPush) {
  Begin();
  const PushingWorker push = Open(0);
  EXPECT_EQ(push.opened.push(), push.stream);
  const PushingWorker lane = Join(push);
  EXPECT_EQ(lane.opened.SerializeAsString(), "");
  ASSERT_TRUE(Push(lane, kW, 0, {1, 2, 3, 4, 5, 6}).ok());
  ASSERT_TRUE(Push(push, kB, 0, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Finish(lane).ok());
  EXPECT_TRUE(folded_.empty());
  ASSERT_TRUE(Finish(push).ok());
  EXPECT_EQ(*push.credit, 40u);
  EXPECT_EQ(*lane.credit, 0u);
  ASSERT_TRUE(Finish(Open(1), {kW, kB}).ok());
  EXPECT_EQ(folded_, std::vector<uint64_t>{1});
  ASSERT_TRUE(accumulator_->FinishSums(1).has_value());
  EXPECT_EQ(Gradient(kB), (std::vector<float>{0.5, 1, 1.5, 2}));
}

// The push has all its chunks, but chunks that wait in a lane would be lost.
TEST_F(PushRegistryTest, ThePushIsNotFinishedByItsLanes) {
  Begin();
  const PushingWorker push = Open(0);
  const PushingWorker lane = Join(push);
  ASSERT_TRUE(Push(lane, kB, 0, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Finish(lane).ok());
  ExpectInvalid(Finish(push), "parameter w");
  ExpectInvalid(Finish(lane, {kW}), "the finish of a lane has missing_parameters or a loss");
  ASSERT_TRUE(Finish(push, {kW}).ok());
}

TEST_F(PushRegistryTest, NoCreditForWhatIsRefused) {
  Begin();
  const PushingWorker push = Open(0);
  const PushingWorker lane = Join(push);
  ASSERT_TRUE(Push(push, kW, 0, {1, 2}).ok());
  EXPECT_EQ(Push(lane, kW, 0, {1, 3}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*push.credit, 8u);
  EXPECT_EQ(Open(0).opened.credit_bytes(), accumulator_->staging_window_bytes());
}

TEST_F(PushRegistryTest, EndWithTheirPush) {
  Begin();
  const PushingWorker push = Open(0);
  const PushingWorker lane = Join(push);
  const PushingWorker other = Open(1);
  const PushingWorker lane_of_other = Join(other, 1);
  accumulator_->Close(push.stream);
  ExpectEnded(lane, absl::StatusCode::kAborted);
  EXPECT_TRUE(push.ended->empty());
  EXPECT_EQ(Push(lane, kB, 0, {1, 2}).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Push(lane_of_other, kB, 0, {1, 2}).ok());
  const PushingWorker next = Open(1);
  ExpectEnded(other, absl::StatusCode::kAborted);
  ExpectEnded(lane_of_other, absl::StatusCode::kAborted);
  const PushingWorker lane_of_next = Join(next, 1);
  accumulator_->BeginFolding(plan_, 2);
  ExpectEnded(next, absl::StatusCode::kAborted);
  ExpectEnded(lane_of_next, absl::StatusCode::kAborted);
}

TEST_F(PushRegistryTest, ALaneMayEndBeforeItsPush) {
  Begin();
  const PushingWorker push = Open(0);
  const PushingWorker lane = Join(push);
  accumulator_->Close(lane.stream);
  EXPECT_TRUE(push.ended->empty());
  EXPECT_TRUE(Push(push, kB, 0, {1, 2}).ok());
}

TEST_F(PushRegistryTest, RefusesLanesOfWhatIsNoPushOfTheRank) {
  Begin();
  const PushingWorker push = Open(0);
  PushingWorker lane = Join(push);
  ExpectInvalid(TryJoin(push, 1).status(), "lane_of is 1, which is not a push of rank 1");
  ExpectInvalid(TryJoin(lane, 0).status(), "lane_of is 2, which is not a push of rank 0");
  lane.stream = 77;
  EXPECT_EQ(TryJoin(lane, 0).status(), absl::AbortedError("lane_of is 77, a push that is over"));
  for (uint32_t i = 1; i < PushRegistry::kMostLanes; ++i) Join(push);
  EXPECT_EQ(TryJoin(push, 0).status(),
            absl::ResourceExhaustedError("push 1 has 3 lanes, expecting at most 3"));
  // Checked as any open is.
  v1::PushOpen late = OpenRequest(0, 2);
  late.set_lane_of(push.stream);
  EXPECT_EQ(TryOpen(late).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kaon::shard
