#include "server/shard/snapshot/checkpoint_order.h"

#include <gtest/gtest.h>

namespace kaon::shard {
namespace {

v1::TakeCheckpoint Ask() {
  v1::TakeCheckpoint ask;
  ask.set_id("a");
  ask.set_position(7);
  ask.set_attempt(5);
  return ask;
}

TEST(CheckpointOrderTest, WaitsForItsEntryThenTellsHowFarItIs) {
  CheckpointOrder order(Ask(), {});
  EXPECT_TRUE(order.waits());
  EXPECT_EQ(order.Report().total_bytes(), 0u);
  order.Begin(100);
  EXPECT_FALSE(order.waits());
  order.progress()->written_bytes = 40;
  EXPECT_EQ(order.Report().id(), "a");
  EXPECT_EQ(order.Report().attempt(), 5u);
  EXPECT_EQ(order.Report().written_bytes(), 40u);
  EXPECT_EQ(order.Report().total_bytes(), 100u);
  EXPECT_FALSE(order.Report().has_part());
  v1::CheckpointPart part;
  part.set_shard(3);
  order.End(part);
  EXPECT_EQ(order.Report().part().shard(), 3u);
  EXPECT_EQ(order.Report().error_code(), 0u);
}

TEST(CheckpointOrderTest, IsOneAttempt) {
  const CheckpointOrder order(Ask(), {});
  EXPECT_TRUE(order.Is("a", 5));
  EXPECT_FALSE(order.Is("a", 6));
  EXPECT_FALSE(order.Is("b", 5));
}

// A shard may have no parameters.
TEST(CheckpointOrderTest, OfNoBytesIsBegunToo) {
  CheckpointOrder order(Ask(), {});
  order.Begin(0);
  EXPECT_FALSE(order.waits());
}

TEST(CheckpointOrderTest, ReportsWhatMadeItFail) {
  CheckpointOrder order(Ask(), {});
  order.End(absl::ResourceExhaustedError("/ckpt is full"));
  EXPECT_FALSE(order.waits());
  EXPECT_EQ(order.Report().error_code(),
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(order.Report().error(), "/ckpt is full");
}

TEST(CheckpointOrderTest, TheWriterHearsThatItIsGivenUp) {
  auto order = std::make_unique<CheckpointOrder>(Ask(), v1::Ballot());
  const auto progress = order->progress();
  EXPECT_FALSE(progress->given_up);
  order.reset();
  EXPECT_TRUE(progress->given_up);
}

}  // namespace
}  // namespace kaon::shard
